"""When a run saves checkpoints, where they go, and from which one it goes on: what a caller of `simulate` decides."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import RawValue
from typing import Protocol

from fedlama.core import PolicyState
from fedlama.training.checkpoint_file import CheckpointSource
from fedlama.training.records import Record

# Raises InputError for a checkpoint that a run cannot go on from; the round that it is of
Check = Callable[[CheckpointSource], int]


class Control:
    """Asked at every cycle's end whether to save and whether to stop; the answer may be given from another process.

    Arguments:
        save_every_seconds: How often to save (default: only when the run is stopped).
    """

    def __init__(self, save_every_seconds: float | None = None) -> None:
        self._every = save_every_seconds
        self._latest = time.monotonic()
        # Save only where no slots of a cohort are to be kept: they may not fit into memory
        self.between_windows = False
        # In shared memory: forked workers see what the parent sets
        self._stop = RawValue(ctypes.c_bool, False)

    def save_between_windows(self) -> None:
        """From now on, save only where a window ends."""
        self.between_windows = True

    def request_stop(self) -> None:
        """Finish the cycle, save and stop."""
        self._stop.value = True

    def wishes(self) -> tuple[bool, bool]:
        """(save, stop), as this process sees it."""
        stop = self._stop.value
        save = stop
        if self._every is not None:
            now = time.monotonic()
            seconds_since_last = now - self._latest
            if seconds_since_last >= self._every:
                self._latest = now
                save = True
        return save, stop


class Sink(Protocol):
    """Takes a checkpoint's content piece by piece."""

    def write(self, piece: bytes) -> None:
        """Take the next bytes.

        Arguments:
            piece: What follows what was taken before.
        """
        ...

    def finish(self) -> None:
        """Keep what was written: it is whole."""
        ...

    def discard(self) -> None:
        """Keep nothing of it: no more will come."""
        ...


@dataclass
class Checkpointing:
    """What a caller of `simulate` who keeps checkpoints hands over, and where a resumed run starts.

    Arguments:
        control: Says when to save and when to stop.
        on_checkpoint: Called with a file's content, and with where the policy stood.
        resume: Such a content, or the file that has it, to go on from; empty to start anew.
        earlier: The records before it.
        find: In place of both, for a caller with several to choose from: it is handed a check, which raises InputError
            for a content or file that the run cannot go on from, and returns the newest that passes, or an empty
            content, with its records.
        begin: In place of `on_checkpoint`, for a caller who keeps files: called with where the policy stands, it gives
            back what takes the content in pieces, because that of very many clients would not fit into memory.
    """

    control: Control
    on_checkpoint: Callable[[bytes, PolicyState], None] | None = None
    resume: CheckpointSource = b""
    earlier: list[Record] = field(default_factory=list)
    find: Callable[[Check], tuple[CheckpointSource, list[Record]]] | None = None
    begin: Callable[[PolicyState], Sink] | None = None
