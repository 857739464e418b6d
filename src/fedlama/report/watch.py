"""Follow runs that are going: draw again whenever their files change, until all are finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedlama.base import InputError
from fedlama.run.directory import Run
from fedlama.run.files import is_locked
from fedlama.study.runs import find_runs

WATCHED = ("config.toml", "rounds.jsonl", "summary.json")
SECONDS = 2.0  # between two looks at the files
REFRESH = 5  # seconds after which the page reads itself again
QUIET_LOOKS = 2  # between two runs of a study nothing is going for a moment

Draw = Callable[[list[Run], int | None], None]
State = list[tuple[str, int, int]]


def watch(folders: Sequence[Path], draw: Draw, pause: Callable[[float], None] = time.sleep) -> None:
    """Call `draw` with the runs and the page's refresh, at every change; with None for the last page.

    It ends when nothing has been going for two looks, or with Ctrl-C.
    """
    seen, quiet = None, 0
    try:
        while quiet < QUIET_LOOKS:
            quiet = 0 if is_going(folders) else quiet + 1
            now = _state(folders)
            if now != seen and _drawn(folders, draw, now):
                seen = now
            if quiet < QUIET_LOOKS:
                pause(SECONDS)
    except KeyboardInterrupt:
        pass
    if _state(folders):
        draw(find_runs(list(folders)), None)


def is_going(folders: Sequence[Path]) -> bool:
    """Whether a process holds a run or a study below; an empty folder is still waited for."""
    runs = any(True for folder in folders for _ in folder.rglob("rounds.jsonl"))
    return not runs or any(is_locked(lock.parent) for folder in folders for lock in folder.rglob(".lock"))


def _state(folders: Sequence[Path]) -> State:
    """What tells that a file has changed: its name, time and size."""
    found: State = []
    runs = {path.parent for folder in folders for path in folder.rglob("rounds.jsonl")}
    for path in sorted(run / name for run in runs for name in WATCHED):
        try:
            status = path.stat()
        except FileNotFoundError:  # not there yet, or replaced this very moment: the next look sees it
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return found


def _drawn(folders: Sequence[Path], draw: Draw, now: State) -> bool:
    """Draw what is there; whether there was anything, and it held still."""
    if not now and all(folder.is_dir() for folder in folders):
        return False
    try:
        draw(find_runs(list(folders)), REFRESH)
    except (InputError, OSError):
        if _state(folders) == now:
            raise
        return False  # a file was replaced while it was read: the next look sees the new one
    return True
