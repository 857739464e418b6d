"""Whether begun runs can go on: they are of this study, whole, and where they were, or it is said what to do."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedlama.base import InputError, printable
from fedlama.run.changed_keys import changed_keys
from fedlama.run.checkpoint_search import find_checkpoint
from fedlama.run.config import Config
from fedlama.run.directory import CHECKPOINTS, CONFIG, RunDirectory
from fedlama.run.files import OUT_OPTION, is_locked
from fedlama.run.toml import read_toml
from fedlama.study.begun import CHECKPOINTS_OPTION, is_begun, read_note, steps_at
from fedlama.study.cells import keys_of_both, resolved
from fedlama.study.settings import Cell, with_rate
from fedlama.study.sitting import Sitting

OTHER_FOLDER = f"another folder (out=, on the command line {OUT_OPTION})"
OTHER_CHECKPOINTS = f"another {CHECKPOINTS_OPTION}"


@dataclass(frozen=True)
class Unfinished:
    """A run that is not finished, begun or not.

    Arguments:
        cell: The run.
        home: Where it will be when it is finished.
        workplace: Where it runs until then.
        rates: The learning rates that pilots choose from; empty where the cell's configuration has the rate.
    """

    cell: Cell
    home: Path
    workplace: Path
    rates: tuple[float, ...] = ()

    @property
    def furthest(self) -> Path:
        """Where it goes on from, which is taken along if that is not where it runs."""
        if steps_at(self.home) > steps_at(self.workplace):
            return self.home
        return self.workplace

    @property
    def taken(self) -> int:
        """The step from which it goes on."""
        return steps_at(self.furthest)


def unfinished(cell: Cell, out: Path, sitting: Sitting | None = None) -> Unfinished:
    """Where a run of a study will be and where it runs.

    Arguments:
        cell: The run.
        out: The study's folder.
        sitting: Where unfinished runs are kept (default: in it).
    """
    workplace = (sitting or Sitting()).workplace(out, cell.path)
    return Unfinished(cell, out / cell.path, workplace)


def check_workplace(run: Unfinished) -> None:
    """Refuse a folder for unfinished runs that cannot be made or written into; nothing is written to find out."""
    folder = run.workplace
    if folder == run.home:
        return
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    reason = ""
    if not nearest.is_dir():
        reason = f"{nearest} is not a folder"
    elif not os.access(nearest, os.W_OK | os.X_OK):
        reason = f"no permission in {nearest}"
    if reason:
        raise InputError(
            f"{folder}: cannot be written ({reason}); choose {OTHER_CHECKPOINTS}"
        )


def check_begun(
    run: Unfinished, *, built: bool = True, with_checkpoints: bool = True
) -> None:
    """Refuse what was begun and cannot go on as this run, at home or where unfinished runs are kept.

    Arguments:
        run: A run of a study.
        built: Whether it may be built, for which its data is needed. Otherwise what the data decides is not compared,
            and checkpoints are not looked at.
        with_checkpoints: Whether checkpoints are read, which takes time if they are large.
    """
    choices = {run.home: OTHER_FOLDER}
    if run.workplace != run.home:
        choices[run.workplace] = OTHER_CHECKPOINTS
    for folder, other in choices.items():
        if not is_begun(folder):
            continue
        own = _at_the_rate_there(run, folder)
        config = own.config
        if built:
            config = resolved(own).config
        _check_same_config(folder, config, other, built=built)
        # What a process writes just now is not whole at every moment.
        if built and with_checkpoints and not is_locked(folder):
            _check_checkpoints(folder, config)


def _at_the_rate_there(run: Unfinished, folder: Path) -> Cell:
    """The run at the learning rate that the begun one has, if that is one of those that pilots choose from."""
    cell = run.cell
    if not run.rates or not (folder / CONFIG).is_file():
        return cell
    local: Any = _tables_of(folder).get("local")
    if not isinstance(local, Mapping):
        return cell
    rate = local.get("learning_rate")
    if rate not in run.rates:
        return cell
    return replace(cell, config=with_rate(cell.config, rate))


def _tables_of(folder: Path) -> dict[str, Any]:
    try:
        return read_toml(folder / CONFIG)
    except InputError as error:
        raise InputError(f"{error}; delete {folder} to train that run anew") from None


def _check_same_config(
    folder: Path, config: Config, other: str, *, built: bool
) -> None:
    if not (folder / CONFIG).is_file():
        # Its checkpoints tell.
        return
    before = _tables_of(folder)
    now = config.model_dump(exclude_none=True)
    if built:
        different = changed_keys(before, now)
    else:
        different = changed_keys(keys_of_both(before, now), keys_of_both(now, before))
    if different:
        keys = ", ".join(different)
        raise InputError(
            f"{folder} holds a begun run of another configuration ({keys}): choose {other}, or delete that folder"
        )


def _check_checkpoints(folder: Path, config: Config) -> None:
    """Refuse checkpoints of which none can be gone on from, before others are trained for hours."""
    directory = RunDirectory(folder, config, resume=True)
    tables = config.model_dump(exclude_none=True)
    find_checkpoint(folder / CHECKPOINTS, tables, directory.recorded())


def warnings_of_lost_runs(runs: Iterable[Unfinished]) -> list[str]:
    """What to say of begun runs that are further elsewhere, or not where they were: they start anew.

    Arguments:
        runs: Those that are not finished.
    """
    left_aside: Counter[str] = (
        Counter()
    )  # by the folder that was named for unfinished runs
    gone: Counter[str] = Counter()
    for run in runs:
        note = read_note(run.home)
        if note is None:
            continue
        noted = Path(note.folder)
        if steps_at(noted) > run.taken:
            left_aside[note.checkpoints] += 1
        # Whoever moved the folder, and names the new one, has the steps there.
        elif run.taken == 0 and not noted.exists():
            gone[note.checkpoints] += 1

    warnings: list[str] = []
    for checkpoints, count in left_aside.items():
        where = printable(checkpoints)
        warnings.append(
            f"{_begun_runs(count)} further in {where}, which this command does not name: what was trained there "
            f"is not used; to go on with it, stop this and add {CHECKPOINTS_OPTION} {where}"
        )
    for checkpoints, count in gone.items():
        where = printable(checkpoints)
        warnings.append(
            f"{_begun_runs(count)} not in {where} ({CHECKPOINTS_OPTION}) any more: training starts anew; to go on "
            f"with what was trained, stop this and bring the folder back, or mount its disk"
        )
    return warnings


def _begun_runs(count: int) -> str:
    if count == 1:
        return "1 begun run is"
    return f"{count:,} begun runs are"
