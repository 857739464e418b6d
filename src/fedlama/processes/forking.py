"""Processes that are forked for one piece of work: how they start, what they send to their parent, how they end.

They are forked, so whatever the parent built (a lambda's module, arrays, closures) is simply there. A process that
loses its parent ends: on Linux at once, elsewhere when it next sends something.
"""

from __future__ import annotations

import ctypes
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import torch

from fedlama.base import DivergenceError, InputError, RunError

# Their message is for the user, without a traceback.
ERRORS = {kind.__name__: kind for kind in (InputError, RunError, DivergenceError)}

Emit = Callable[[Any], None]
Work = Callable[[Emit], Any]


@dataclass(frozen=True)
class Item:
    """Something that the work emitted on its way."""

    content: Any


@dataclass(frozen=True)
class Finished:
    """The work is done; this is its result."""

    result: Any


@dataclass(frozen=True)
class Failure:
    """The work raised an error, or its process ended without a word (then both are empty)."""

    kind: str = ""  # the name of the error's class
    text: str = ""  # its message, or a traceback

    def error(self) -> Exception | None:
        """The same error, if it is one whose message is for the user."""
        if self.kind not in ERRORS:
            return None
        make_error = ERRORS[self.kind]
        lines = self.text.split("\n")
        return make_error(*lines)

    @staticmethod
    def of(error: BaseException) -> Failure:
        """What is sent of an error."""
        kind = type(error).__name__
        # Such as a full disk: its message is for the user, too
        if isinstance(error, OSError):
            kind = "RunError"
        if kind in ERRORS:
            return Failure(kind, str(error))
        return Failure(kind, traceback.format_exc())


FromChild = Item | Finished | Failure


@dataclass(eq=False)
class Forked:
    """A process and the end of the pipe at which its messages arrive."""

    process: BaseProcess
    messages: Connection
    ended: bool = False  # it has sent its last message

    def receive(self) -> FromChild:
        """Its next message; a pipe that was closed without one is a failure."""
        try:
            message = self.messages.recv()
        except (EOFError, OSError):
            message = Failure()
        self.ended = not isinstance(message, Item)
        return message

    def failure_so_far(self) -> Failure | None:
        """What it has sent of a failure, without waiting for more."""
        while not self.ended and self._has_message():
            message = self.receive()
            if isinstance(message, Failure):
                return message
        return None

    def _has_message(self) -> bool:
        try:
            return self.messages.poll()
        except (EOFError, OSError):
            return False

    def close(self) -> None:
        """End it, if it still runs, and release what it used."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.messages.close()


@dataclass
class Forks:
    """The processes that a parent has forked; those that are left when it leaves the `with` block are killed."""

    running: list[Forked] = field(default_factory=list)

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for forked in self.running:
            forked.close()
        self.running.clear()

    def start(self, work: Work, prepare: Callable[[], None], *, daemon: bool) -> Forked:
        """Fork a process that calls `work(emit)`.

        Arguments:
            work: what it does; what it emits, and its result, are sent to the parent.
            prepare: called first, in the new process: what signals mean there.
            daemon: whether it ends with its parent even if that exits in an orderly way; it can then fork none itself.
        """
        context = get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        readers = [receiver]
        for other in self.running:
            readers.append(other.messages)
        process = context.Process(
            target=_main, args=(work, prepare, sender, readers), daemon=daemon
        )
        process.start()
        # So that the pipe ends with the process, and no process forked later holds it open
        sender.close()
        forked = Forked(process, receiver)
        self.running.append(forked)
        return forked

    def listen(
        self, timeout: float | None = None
    ) -> Iterator[tuple[Forked, FromChild]]:
        """One message of each process that has something to say; waits for the first, at most `timeout` seconds."""
        by_connection: dict[object, Forked] = {}
        connections: list[Connection] = []
        for forked in self.running:
            if forked.ended:
                continue
            by_connection[forked.messages] = forked
            connections.append(forked.messages)
        for ready in connection.wait(connections, timeout):
            forked = by_connection[ready]
            message = forked.receive()
            yield forked, message

    def all_ended(self) -> bool:
        """Whether every process has sent its last message."""
        return all(forked.ended for forked in self.running)

    def forget(self, forked: Forked) -> None:
        """Close one that has sent its last message."""
        self.running.remove(forked)
        forked.close()


def _main(
    work: Work,
    prepare: Callable[[], None],
    sender: Connection,
    readers: list[Connection],
) -> None:
    prepare()
    # Inherited; one left open here would hide that its reader has died
    for reader in readers:
        reader.close()
    try:
        # a fork has none of its parent's threads, and torch would wait for them for ever
        torch.set_num_threads(1)
        end_with_parent()

        def emit(content: Any) -> None:
            sender.send(Item(content))

        result = work(emit)
        sender.send(Finished(result))
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)  # the parent has died: nobody listens
    except BaseException as error:
        with suppress(OSError):
            sender.send(Failure.of(error))
        os._exit(1)


def end_with_parent() -> None:
    """On Linux the kernel ends an orphan at once; elsewhere its broken pipe does, with the next message."""
    set_death_signal = 1  # prctl.h's PR_SET_PDEATHSIG
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.prctl(set_death_signal, signal.SIGKILL)
