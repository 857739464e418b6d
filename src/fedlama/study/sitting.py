"""One sitting of a long study: how long it may take, and where runs wait that it did not finish."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedlama.run.directory import CHECKPOINTS, SUMMARY
from fedlama.run.files import PARTIAL, write_atomically, writing
from fedlama.study.begun import BEGUN, drop_note, is_begun, steps_at


@dataclass(frozen=True)
class Sitting:
    """How long this one of a study's sittings may take, and where it works.

    minutes: after so many, running cells finish their cycle, save a checkpoint and stop; None: as long as it takes.
    checkpoints: the folder in which cells run, with their records and checkpoints, until they are finished and
        delivered to the study's own; None: they run where they stay.
    named: the folder above it that the user named, where several studies keep their runs (default: that one).
    """

    minutes: float | None = None
    checkpoints: Path | None = None
    began: float = field(default_factory=time.monotonic)
    named: Path | None = field(default=None, compare=False)

    def from_now(self) -> Sitting:
        """The same sitting, whose minutes begin now: those of a plan are not counted."""
        return replace(self, began=time.monotonic())

    def is_over(self) -> bool:
        """Whether the time is up."""
        if self.minutes is None:
            return False
        elapsed = time.monotonic() - self.began
        return elapsed >= 60 * self.minutes

    def below(self, folder: str) -> Sitting:
        """The same sitting, for one study of several that keep their checkpoints in one folder."""
        if self.checkpoints is None:
            return self
        return replace(
            self,
            checkpoints=self.checkpoints / folder,
            named=self.keeps_in,
        )

    @property
    def keeps_in(self) -> Path | None:
        """The folder for unfinished runs, as the user named it."""
        return self.named or self.checkpoints

    def workplace(self, out: Path, path: Path) -> Path:
        """Where the cell at this path below the study's folder runs."""
        if self.checkpoints is None:
            return out / path
        # One folder may have two names: a run that were moved into its own folder would be deleted there.
        if self.checkpoints.resolve() == out.resolve():
            return out / path
        return self.checkpoints / path

    def drop_empty(self, out: Path, paths: Iterable[Path]) -> None:
        """Leave no empty folders where these cells of a study ran; the one that the user named stays.

        Called while no cell runs, because one that begins makes its folder and the one above it one after the other.

        Arguments:
            out: The study's folder.
            paths: Of the cells, below it.
        """
        named = self.keeps_in
        if named is None:
            return
        for path in paths:
            workplace = self.workplace(out, path)
            if workplace == out / path:
                continue
            folder = workplace.parent
            while named in folder.parents and _is_removed(folder):
                folder = folder.parent


def _is_removed(folder: Path) -> bool:
    """Remove a folder if it is empty; whether it is gone."""
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def take_along(home: Path, workplace: Path) -> None:
    """Go on elsewhere with a run that an earlier sitting began in the study's own folder, if it is further there."""
    if workplace == home:
        return
    if not is_begun(home):
        return
    is_kept = workplace.exists() and steps_at(workplace) >= steps_at(home)
    if is_kept:
        return

    with writing(workplace):
        workplace.parent.mkdir(parents=True, exist_ok=True)
        # The beginning of the same run
        if workplace.exists():
            shutil.rmtree(workplace)
        _move(home, workplace)


def _move(source: Path, target: Path) -> None:
    """Move a folder to a place that is free; if it is interrupted, one of them is there and whole."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # To another disk it is copied.
        partial = target.with_name(target.name + PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(source, partial)
        partial.rename(target)
        shutil.rmtree(source)


def deliver(workplace: Path, home: Path) -> None:
    """Bring an ended run to the study's own folder: its last model too, but no checkpoint that only going on needs."""
    if workplace == home:
        drop_note(home)
        return
    if not workplace.exists():
        return

    for source in sorted(workplace.rglob("*")):
        if source.is_dir() or source.name == SUMMARY:
            continue
        is_for_going_on = source.match(f"{CHECKPOINTS}/step-*")
        if is_for_going_on or source.name in (".lock", BEGUN):
            continue
        path = source.relative_to(workplace)
        _copy(source, home / path)

    # What began at home as well and did not get as far
    for checkpoint in home.glob(f"{CHECKPOINTS}/step-*"):
        checkpoint.unlink()
    drop_note(home)
    # Last: a folder that has it holds a finished run
    if (workplace / SUMMARY).is_file():
        _copy(workplace / SUMMARY, home / SUMMARY)
    shutil.rmtree(workplace)


def _copy(source: Path, target: Path) -> None:
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    content = source.read_bytes()
    write_atomically(target, content)
