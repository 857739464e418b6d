"""Sums over the worker processes of one machine, through memory that they share.

A round of a small model takes a few milliseconds and needs three sums; through sockets each of them would take half a
millisecond. Here a process writes its numbers into its slot, signals the others, and adds up what it finds in theirs.
The memory has no name in the file system, so nothing is left behind whatever ends the processes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.synchronize import Semaphore

import torch
from torch import Tensor

from fedlama.processes.world import World

SLOT = 1 << 20  # bytes that go over at a time
# To find a message there before sleeping: waking up takes longer than most waits
ATTEMPTS = 500
SECONDS_BETWEEN_LOOKS = 1.0  # for a parent that has died


class Exchange:
    """Made by the parent before it forks: two sets of slots, and a semaphore for every pair of processes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, 2 * size * SLOT)
        self._parent = os.getpid()
        # One per pair: with one per receiver, a fast process's second message could pass for a slow one's first
        self._arrivals: list[list[Semaphore]] = []
        context = get_context("fork")
        for _ in range(size):
            to_each = [context.Semaphore(0) for _ in range(size)]
            self._arrivals.append(to_each)

    def slot(self, turn: int, rank: int, dtype: torch.dtype, length: int) -> Tensor:
        """Where a process puts its numbers.

        Arguments:
            turn: how many sums there were before. Slots are used at every other one, so that nobody overwrites what
                another may still be reading.
            rank: whose slot it is.
            dtype: of the numbers.
            length: how many they are.
        """
        first_of_turn = turn % 2 * self.size
        number = first_of_turn + rank
        return torch.frombuffer(
            self._memory,
            dtype=dtype,
            count=length,
            offset=number * SLOT,
        )

    def meet(self, rank: int) -> None:
        """Return when every process has come here."""
        others = [other for other in range(self.size) if other != rank]
        # First tell everyone, then wait: the other way round all would wait for each other
        own_signals = self._arrivals[rank]
        for other in others:
            own_signals[other].release()
        for other in others:
            arrival = self._arrivals[other][rank]
            self._await(arrival.acquire)

    def _await(self, acquire: Callable[..., bool]) -> None:
        for _ in range(ATTEMPTS):
            if acquire(block=False):
                return
        while not acquire(timeout=SECONDS_BETWEEN_LOOKS):
            if os.getppid() != self._parent:
                os._exit(1)  # nobody is left to report to


class SharedWorld(World):
    """One of the processes that an `Exchange` connects."""

    def __init__(self, exchange: Exchange, rank: int) -> None:
        self.rank = rank
        self.size = exchange.size
        self._exchange = exchange
        self._turn = 0

    def sum_(self, values: Tensor) -> None:
        """Add `values` up over all processes, in place."""
        self._combine(values, torch.add)

    def max_(self, values: Tensor) -> None:
        """Take the maximum of `values` over all processes, in place."""
        self._combine(values, torch.maximum)

    def _combine(self, values: Tensor, operation: Callable[..., Tensor]) -> None:
        if not values.numel():
            return
        per_slot = SLOT // values.element_size()
        flat = values.view(-1)
        for part in flat.split(per_slot):
            self._combine_part(part, operation)
            self._turn += 1

    def _combine_part(self, part: Tensor, operation: Callable[..., Tensor]) -> None:
        """As much as fits into a slot."""
        slots: list[Tensor] = []
        for rank in range(self.size):
            slot = self._exchange.slot(
                self._turn,
                rank,
                part.dtype,
                len(part),
            )
            slots.append(slot)
        own_slot = slots[self.rank]
        own_slot.copy_(part)
        self._exchange.meet(self.rank)

        # All processes combine in the order of ranks, so that all have the same bits
        first, second, *others = slots
        operation(first, second, out=part)
        for slot in others:
            operation(part, slot, out=part)
