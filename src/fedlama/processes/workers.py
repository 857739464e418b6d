"""Worker processes: start them, take their records, and notice at once when one of them dies.

Workers are forked, so whatever the caller built (a lambda's module, arrays, closures) is simply there. The parent does
not train: it only reads what rank 0 sends. A worker that loses its parent notices when it next waits for the others or
sends a record, so no process is left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from fedlama.base import DivergenceError, InputError, RunError
from fedlama.processes.exchange import Exchange, SharedWorld
from fedlama.processes.world import World, local_world

Work = Callable[[World, Callable[[Any], None]], Any]

SENTENCES = {kind.__name__: kind for kind in (InputError, RunError, DivergenceError)}  # errors that need no traceback
GRACE = 2.0  # seconds for a process that failed to end
GRACE_OF_OTHERS = (
    0.2  # for the others to tell what they saw: whoever began it had told, or was dead, before they saw it
)


@dataclass
class _Worker:
    rank: int
    process: BaseProcess
    messages: Connection
    failure: tuple[str, str] | None = None


def run_workers(count: int, work: Work, on_message: Callable[[Any], None], backend: str) -> Any:
    """Run `work(world, emit)` in `count` processes; what rank 0 emits goes to `on_message`, its result is returned."""
    with _workers(count, work, backend) as workers:
        return _listen(workers, on_message)


@contextmanager
def _workers(count: int, work: Work, backend: str) -> Iterator[list[_Worker]]:
    context = get_context("fork")
    exchange = Exchange(count) if backend == "gloo" else None
    # Only where the processes meet at a file is there a folder: nobody would remove it after a SIGKILL
    with nullcontext("") if exchange else tempfile.TemporaryDirectory(prefix="fedlama-") as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(count)]
        workers: list[_Worker] = []
        try:
            for rank in range(count):
                arguments = (rank, count, Path(folder) / "meeting-point", work, pipes, backend, exchange)
                process = context.Process(target=_worker_main, args=arguments, daemon=True)
                process.start()
                workers.append(_Worker(rank, process, pipes[rank][0]))
            for _, sender in pipes:
                sender.close()
            yield workers
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.join()
                worker.process.close()
                worker.messages.close()


def _worker_main(
    rank: int,
    size: int,
    meeting_point: Path,
    work: Work,
    pipes: list[tuple[Connection, Connection]],
    backend: str,
    exchange: Exchange | None,
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group: the parent decides what they mean
        signal.signal(number, signal.SIG_IGN)
    messages = _keep_own_end(rank, pipes)
    emit: Callable[[Any], None] = (lambda item: messages.send(("item", item))) if rank == 0 else (lambda item: None)
    try:
        torch.set_num_threads(1)
        die_with_parent()
        _keep_freed_memory()
        if exchange:
            result = work(SharedWorld(exchange, rank), emit)
        else:
            with local_world(rank, size, meeting_point, backend) as world:
                result = work(world, emit)
        messages.send(("result", result if rank == 0 else None))
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)  # the parent is gone: nobody listens
    except BaseException as error:
        kind = "RunError" if isinstance(error, OSError) else type(error).__name__
        text = str(error) if kind in SENTENCES else traceback.format_exc()
        with suppress(OSError):
            messages.send(("failure", (kind, text)))
        os._exit(1)


def die_with_parent() -> None:
    """On Linux the kernel ends an orphan at once; elsewhere its broken pipe does, with the next record."""
    set_death_signal = 1  # prctl.h's PR_SET_PDEATHSIG
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").prctl(set_death_signal, signal.SIGKILL)


def _keep_freed_memory() -> None:
    """Let glibc reuse what was freed: a step frees and asks for the same megabytes, and fresh pages cost time."""
    mmap_threshold, trim_threshold, most = -3, -1, 32 << 20  # malloc.h's M_… numbers; glibc admits no more than 32 MiB
    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_threshold, most)
        libc.mallopt(trim_threshold, 1 << 30)


def _keep_own_end(rank: int, pipes: list[tuple[Connection, Connection]]) -> Connection:
    """A forked process inherits every end of every pipe; one left open here would hide that its reader is gone."""
    for index, (receiver, sender) in enumerate(pipes):
        receiver.close()
        if index != rank and not sender.closed:
            sender.close()
    return pipes[rank][1]


def _listen(workers: list[_Worker], on_message: Callable[[Any], None]) -> Any:
    result: Any = None
    running = {worker.messages: worker for worker in workers}
    while running:
        for ready in connection.wait(list(running)):
            worker = running[ready]  # type: ignore[index] - wait returns the connections it was given
            try:
                kind, content = worker.messages.recv()
            except EOFError:
                kind, content = "failure", ("", "")
            if kind == "item":
                on_message(content)
            elif kind == "result":
                result = content if worker.rank == 0 else result
                del running[worker.messages]
            else:
                worker.failure = content
                raise _failure(workers, worker)
    return result


def _failure(workers: list[_Worker], seen: _Worker) -> Exception:
    """One process was seen to fail, perhaps because it lost its connection to another: find the one that began it."""
    seen.process.join(GRACE)
    deadline = time.monotonic() + GRACE_OF_OTHERS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        with suppress(EOFError, OSError):
            while worker.failure is None and worker.messages.poll():
                kind, content = worker.messages.recv()
                worker.failure = content if kind == "failure" else None
    for worker in workers:
        if worker.failure and worker.failure[0] in SENTENCES:
            return SENTENCES[worker.failure[0]](worker.failure[1])
    for worker in workers:
        code = worker.process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = " (the system may have run out of memory)" if name == "SIGKILL" else ""
            return RunError(f"worker {worker.rank} of {len(workers)} was ended by {name}{hint}: the run stopped")
    told = [worker for worker in workers if worker.failure and worker.failure[1]]
    first = min(told, key=_looks_like_a_consequence, default=None)
    if first is None or first.failure is None:
        return RunError("a worker ended without a word: the run stopped")
    return RunError(f"worker {first.rank} of {len(workers)} failed:\n{first.failure[1]}")


def _looks_like_a_consequence(worker: _Worker) -> bool:
    text = worker.failure[1] if worker.failure else ""
    return any(words in text for words in ("Connection closed by peer", "Connection reset", "gloo", "NCCL"))
