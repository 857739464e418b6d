"""One sitting of a long study: how long it may take, and where runs wait that it did not finish."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedlama.run.directory import CONFIG, SUMMARY
from fedlama.run.files import write_atomically, writing


@dataclass(frozen=True)
class Sitting:
    """How long this one of a study's sittings may take, and where it works.

    minutes: after so many, running cells finish their cycle, save a checkpoint and stop; None: as long as it takes.
    checkpoints: the folder in which cells run, with their records and checkpoints, until they are finished and
        delivered to the study's own; None: they run where they stay.
    """

    minutes: float | None = None
    checkpoints: Path | None = None
    began: float = field(default_factory=time.monotonic)

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
        return replace(self, checkpoints=self.checkpoints / folder)

    def workplace(self, out: Path, path: Path) -> Path:
        """Where the cell at this path below the study's folder runs."""
        if self.checkpoints is None:
            return out / path
        return self.checkpoints / path


def take_along(home: Path, workplace: Path) -> None:
    """Go on elsewhere with a run that an earlier sitting began in the study's own folder."""
    if workplace == home or workplace.exists():
        return
    began_at_home = (home / CONFIG).is_file()
    if not began_at_home:
        return

    with writing(workplace):
        workplace.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(home, workplace)


def deliver(workplace: Path, home: Path) -> None:
    """Bring an ended run to the study's own folder: its last model too, but no checkpoint that only going on needs."""
    if workplace == home or not workplace.exists():
        return

    for source in sorted(workplace.rglob("*")):
        if source.is_dir() or source.name == SUMMARY:
            continue
        is_for_going_on = source.match("checkpoint/step-*") or source.name == ".lock"
        if is_for_going_on:
            continue
        path = source.relative_to(workplace)
        _copy(source, home / path)

    # Last: a folder that has it holds a finished run
    if (workplace / SUMMARY).is_file():
        _copy(workplace / SUMMARY, home / SUMMARY)
    shutil.rmtree(workplace)


def _copy(source: Path, target: Path) -> None:
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    content = source.read_bytes()
    write_atomically(target, content)
