"""Worker processes that share one run: start them, take their records, and notice at once when one of them dies.

The parent does not train: it only reads what rank 0 sends. A worker that loses its parent notices when it next waits
for the others or sends a record, so no process is left behind.
"""

from __future__ import annotations

import ctypes
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.base import RunError
from fedlama.processes.exchange import Exchange, SharedWorld
from fedlama.processes.forking import Emit, Failure, Finished, Forked, Forks, Item
from fedlama.processes.signals import ignore_signals
from fedlama.processes.world import LostConnectionError, World, local_world

SharedWork = Callable[[World, Emit], Any]

GRACE = 2.0  # seconds for a process that failed to end
# Seconds for the others to send what they saw: whoever began it had sent its failure, or was dead, before they saw it
GRACE_OF_OTHERS = 0.2
MAX_TRIMMED = 32 << 20  # glibc keeps no larger blocks than 32 MiB


def run_workers(
    count: int, work: SharedWork, on_item: Callable[[Any], None], backend: str
) -> Any:
    """Run `work(world, emit)` in several processes; the result of rank 0.

    Arguments:
        count: how many processes.
        work: what each of them does with its `world`.
        on_item: called in this process with what rank 0 emits.
        backend: torch's collectives that the processes use; with "gloo" they add through shared memory instead.
    """
    exchange = None
    if backend == "gloo":
        exchange = Exchange(count)
    # Only where the processes meet at a file is there a folder: nobody would remove it after a SIGKILL
    meeting_folder: AbstractContextManager[str] = nullcontext("")
    if exchange is None:
        meeting_folder = tempfile.TemporaryDirectory(prefix="fedlama-")
    with meeting_folder as folder, Forks() as forks:
        meeting_point = Path(folder) / "meeting-point"
        for rank in range(count):
            share = _share_of(
                rank=rank,
                size=count,
                work=work,
                meeting_point=meeting_point,
                backend=backend,
                exchange=exchange,
            )
            forks.start(share, _prepare, daemon=True)
        return _listen(forks, on_item)


def _share_of(
    rank: int,
    size: int,
    work: SharedWork,
    meeting_point: Path,
    backend: str,
    exchange: Exchange | None,
) -> Callable[[Emit], Any]:
    """What one worker does."""

    def share(emit: Emit) -> Any:
        if rank != 0:
            emit = _emit_nothing
        if exchange is not None:
            world = SharedWorld(exchange, rank)
            result = work(world, emit)
        else:
            with local_world(rank, size, meeting_point, backend) as world:
                result = work(world, emit)
        if rank != 0:
            return None
        return result

    return share


def _emit_nothing(content: Any) -> None:
    """All processes come to the same records: one of them is enough."""


def _prepare() -> None:
    ignore_signals()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let glibc reuse what was freed: a step frees and asks for the same megabytes, and fresh pages cost time."""
    # The numbers of M_MMAP_THRESHOLD and M_TRIM_THRESHOLD in malloc.h
    mmap_threshold = -3
    trim_threshold = -1
    # Another C library has no such function
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_threshold, MAX_TRIMMED)
        libc.mallopt(trim_threshold, 1 << 30)


def _listen(forks: Forks, on_item: Callable[[Any], None]) -> Any:
    """Take messages until every worker has finished; the first one's result."""
    result: Any = None
    while not forks.all_ended():
        for worker, message in forks.listen():
            if isinstance(message, Failure):
                raise _cause(forks.running, worker, message)
            if isinstance(message, Item):
                on_item(message.content)
            elif isinstance(message, Finished):
                is_first = worker is forks.running[0]
                if is_first:
                    result = message.result
    return result


@dataclass(frozen=True)
class _Ended:
    """How a worker ended, as far as is known."""

    rank: int
    failure: Failure | None
    exit_code: int | None


def _cause(workers: Sequence[Forked], seen: Forked, failure: Failure) -> Exception:
    """One worker was seen to fail, perhaps because it lost its connection to another: find the one that began it."""
    seen.process.join(GRACE)
    deadline = time.monotonic() + GRACE_OF_OTHERS
    ends: list[_Ended] = []
    for rank, worker in enumerate(workers):
        seconds_left = deadline - time.monotonic()
        worker.process.join(max(0.0, seconds_left))
        if worker is seen:
            sent = failure
        else:
            sent = worker.failure_so_far()
        end = _Ended(
            rank=rank,
            failure=sent,
            exit_code=worker.process.exitcode,
        )
        ends.append(end)
    # The most telling first: a message for the user, a signal, and last a traceback, which may be a consequence
    return _known_error(ends) or _killed(ends) or _unknown_error(ends)


def _known_error(ends: Sequence[_Ended]) -> Exception | None:
    for end in ends:
        if end.failure is None:
            continue
        error = end.failure.error()
        if error is not None:
            return error
    return None


def _killed(ends: Sequence[_Ended]) -> Exception | None:
    for end in ends:
        if end.exit_code is None or end.exit_code >= 0:
            continue
        name = signal.Signals(-end.exit_code).name
        hint = ""
        if name == "SIGKILL":
            hint = " (the system may have run out of memory)"
        return RunError(
            f"worker {end.rank} of {len(ends)} was ended by {name}{hint}: the run stopped"
        )
    return None


def _unknown_error(ends: Sequence[_Ended]) -> Exception:
    explained: list[_Ended] = []
    for end in ends:
        if end.failure is not None and end.failure.text:
            explained.append(end)
    if not explained:
        return RunError("a worker ended without a word: the run stopped")

    # False sorts before True: whoever did not merely lose the others began it
    first = min(explained, key=_looks_like_a_consequence)
    assert first.failure is not None
    traceback = first.failure.text.splitlines()
    return RunError(
        f"worker {first.rank} of {len(ends)} failed:",
        *traceback,
    )


def _looks_like_a_consequence(end: _Ended) -> bool:
    """Whether a worker only lost the others."""
    assert end.failure is not None
    return end.failure.kind in LOST_CONNECTION


# Of a collective, and of torch.distributed elsewhere
LOST_CONNECTION = (
    LostConnectionError.__name__,
    "DistError",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
)
