"""Sums over the worker processes of one machine, through memory that they share.

A round of a small model takes a few milliseconds and needs three sums; through sockets each of them would take half a
millisecond. Here a process writes its numbers into its slot, tells the others, and adds up what it finds in theirs.
The memory has no name in the file system, so nothing is left behind whatever ends the processes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from multiprocessing import get_context

import torch
from torch import Tensor

from fedlama.processes.world import World

SLOT = 1 << 20  # bytes that go over at a time
ATTEMPTS = 500  # to find a message there before sleeping: waking up takes longer than most waits
SECONDS_BETWEEN_LOOKS = 1.0  # for a parent that is gone


class Exchange:
    """Made by the parent before it forks: two sets of slots, and a semaphore for every pair of processes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, 2 * size * SLOT)
        context = get_context("fork")
        # One for each pair: with one a receiver, a fast process's second message could pass for a slow one's first
        self._arrivals = [[context.Semaphore(0) for _ in range(size)] for _ in range(size)]
        self._parent = os.getpid()

    def slot(self, turn: int, rank: int, dtype: torch.dtype, length: int) -> Tensor:
        """Where `rank` puts `length` numbers at this turn: slots are used at every other turn, so that nobody
        overwrites what another may still be reading."""
        return torch.frombuffer(self._memory, dtype=dtype, count=length, offset=(turn % 2 * self.size + rank) * SLOT)

    def meet(self, rank: int) -> None:
        """Return when every process has come here."""
        others = [other for other in range(self.size) if other != rank]
        for other in others:
            self._arrivals[rank][other].release()
        for other in others:
            self._await(self._arrivals[other][rank].acquire)

    def _await(self, acquire: Callable[..., bool]) -> None:
        for _ in range(ATTEMPTS):
            if acquire(block=False):
                return
        while not acquire(timeout=SECONDS_BETWEEN_LOOKS):
            if os.getppid() != self._parent:
                os._exit(1)  # nobody is left to tell


class SharedWorld(World):
    """One of the processes that an `Exchange` connects."""

    def __init__(self, exchange: Exchange, rank: int) -> None:
        self.rank, self.size = rank, exchange.size
        self._exchange, self._turn = exchange, 0

    def sum_(self, values: Tensor) -> None:
        """Add `values` up over all processes, in place."""
        self._combine(values, torch.add)

    def max_(self, values: Tensor) -> None:
        """Take the maximum of `values` over all processes, in place."""
        self._combine(values, torch.maximum)

    def _combine(self, values: Tensor, operation: Callable[..., Tensor]) -> None:
        for part in values.view(-1).split(SLOT // values.element_size()) if values.numel() else ():
            slots = [self._exchange.slot(self._turn, rank, part.dtype, len(part)) for rank in range(self.size)]
            slots[self.rank].copy_(part)
            self._exchange.meet(self.rank)
            operation(slots[0], slots[1], out=part)
            for slot in slots[2:]:
                operation(part, slot, out=part)
            self._turn += 1
