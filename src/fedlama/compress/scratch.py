"""Memory for the large temporary tensors of a message, kept from one message to the next.

A system clears the memory that it hands out, which can take as long as all of the coding.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from fedlama.core.layers import ALIGNMENT

LARGE = 1 << 18  # numbers: smaller tensors lie in memory that a process keeps by itself


class _Memory(threading.local):
    """What one thread keeps."""

    keeps = False
    working: dict[str, Tensor]
    lasting: list[Tensor]
    used = 0  # of the lasting ones, by the message that is being coded


_memory = _Memory()


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep the memory of temporary tensors until the end of a `with` block.

    Each message in it is written over the one before: of that, what was coded must not be used any longer.
    """
    _memory.keeps = True
    _memory.working = {}
    _memory.lasting = []
    try:
        yield
    finally:
        _memory.keeps = False
        _memory.working = {}
        _memory.lasting = []


def begin_message() -> None:
    """From here on the message before is written over."""
    _memory.used = 0


def working_tensor(count: int, name: str) -> Tensor:
    """A tensor of so many numbers, whatever they are. It is needed until the next one of this name is asked for.

    Arguments:
        count: How many.
        name: What the tensor is for.
    """
    if not _memory.keeps or count < LARGE:
        return torch.empty(count)
    memory = _memory.working.get(name)
    if memory is None or len(memory) < count:
        memory = _large_tensor(count)
        _memory.working[name] = memory
    return memory[:count]


def lasting_tensor(count: int) -> Tensor:
    """A tensor of so many numbers, whatever they are. It is needed until the next message.

    Arguments:
        count: How many.
    """
    if not _memory.keeps or count < LARGE:
        return torch.empty(count)
    number = _memory.used
    _memory.used += 1
    lasting = _memory.lasting
    if number == len(lasting):
        lasting.append(_large_tensor(count))
    if len(lasting[number]) < count:
        lasting[number] = _large_tensor(count)
    return lasting[number][:count]


def _large_tensor(count: int) -> Tensor:
    """From numpy, which asks the system for large pages: pieces that lie anywhere in them are found sooner."""
    numbers = np.empty(count + ALIGNMENT, dtype=np.float32)
    address = numbers.ctypes.data // numbers.itemsize
    # As many as are missing to the next aligned address
    begins = -address % ALIGNMENT
    aligned = numbers[begins : begins + count]
    return torch.from_numpy(aligned)
