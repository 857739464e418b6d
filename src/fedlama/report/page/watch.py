"""Follow runs that are going: draw again whenever their files change, until all are finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedlama.base import InputError
from fedlama.run.directory import CONFIG, ROUNDS, SUMMARY
from fedlama.run.files import is_locked
from fedlama.run.recorded import RecordedRun
from fedlama.study.runs import find_runs

WATCHED = (CONFIG, ROUNDS, SUMMARY)
SECONDS_BETWEEN_LOOKS = 2.0
REFRESH = 5  # seconds after which the page reads itself again
QUIET_LOOKS = 2  # between two runs of a study nothing is going for a moment

DrawRuns = Callable[[list[RecordedRun], int | None], None]
# Name, time and size: what shows that a file has changed
FileStates = list[tuple[str, int, int]]


def watch(
    folders: Sequence[Path], draw: DrawRuns, pause: Callable[[float], None] = time.sleep
) -> None:
    """Draw at every change; it ends when nothing has been going for two looks, or with Ctrl-C.

    Arguments:
        folders: run directories, or folders above them.
        draw: called with the runs and the page's refresh in seconds, and with None for the last page.
        pause: waits for so many seconds.
    """
    drawn = None
    quiet = 0
    try:
        while quiet < QUIET_LOOKS:
            quiet = 0 if is_going(folders) else quiet + 1
            now = _file_states(folders)
            if now != drawn and _draw_once(folders, draw, now):
                drawn = now
            if quiet < QUIET_LOOKS:
                pause(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        pass

    if _file_states(folders):
        draw(find_runs(list(folders)), None)


def is_going(folders: Sequence[Path]) -> bool:
    """Whether a process holds a run or a study below; an empty folder is still waited for."""
    has_begun = any(_below(folders, ROUNDS))
    if not has_begun:
        return True
    locks = _below(folders, ".lock")
    return any(is_locked(lock.parent) for lock in locks)


def _below(folders: Sequence[Path], name: str) -> Iterator[Path]:
    for folder in folders:
        yield from folder.rglob(name)


def _file_states(folders: Sequence[Path]) -> FileStates:
    runs = {rounds.parent for rounds in _below(folders, ROUNDS)}
    watched = [run / name for run in runs for name in WATCHED]

    found: FileStates = []
    for path in sorted(watched):
        try:
            status = path.stat()
        except FileNotFoundError:
            # Not there yet, or replaced this very moment: the next look sees it.
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return found


def _draw_once(folders: Sequence[Path], draw: DrawRuns, now: FileStates) -> bool:
    """Draw what is there; whether there was anything, and it held still."""
    if not now and not any(folder.is_file() for folder in folders):
        # Nothing yet, or not even a folder: a run that is about to start will make it.
        return False
    try:
        draw(find_runs(list(folders)), REFRESH)
    except (InputError, OSError):
        if _file_states(folders) == now:
            raise
        # A file was replaced while it was read: the next look sees the new one.
        return False
    return True
