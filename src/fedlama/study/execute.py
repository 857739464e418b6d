"""Running a study: pilots choose learning rates, then every missing cell of the table is run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedlama.base import InputError, RunError
from fedlama.processes.devices import default_workers
from fedlama.run.directory import ROUNDS, SUMMARY
from fedlama.run.files import locked, write_atomically
from fedlama.run.resolve import resolve
from fedlama.study.cells import (
    DIVERGED,
    OnNews,
    check_same_config,
    is_done,
)
from fedlama.study.choosing import chosen_rates, known_rates
from fedlama.study.going_on import check_begun, unfinished
from fedlama.study.index import INDEX, Choice, StudyIndex, is_json, read_index
from fedlama.study.settings import Cell, Study, rate_text
from fedlama.study.side_by_side import run_cells
from fedlama.study.sitting import Sitting


def run_study(
    study: Study,
    out: Path,
    workers: int | None,
    watch: OnNews,
    *,
    shared: bool = False,
    sitting: Sitting | None = None,
    train: bool = True,
) -> StudyIndex:
    """Run what is missing of a study; what its folder then holds of it.

    Arguments:
        study: the settings and their seeds.
        out: the study's folder.
        workers: how many processes may run at a time (default: one per GPU, or one per core).
        watch: called with each record of a cell, and when it ends.
        shared: whether the folder may also hold runs of other studies, which its index then keeps.
        sitting: how long it may take now, and where unfinished runs are kept (default: as long as it takes, in `out`).
        train: whether missing runs are trained; otherwise what is finished is all that there is, and where that is
            nothing, nothing is written.
    """
    if not train:
        _check_anything_is_finished(study, out)
    processes = workers
    if not processes:
        devices = [setting.config.train.device for setting in study.settings]
        processes = min(default_workers(device) for device in devices)

    with locked(out):
        index_there = _index_there(out)
        others = None
        if shared:
            others = index_there
        samples: dict[str, int] = {}
        if index_there is not None:
            samples.update(index_there.samples)
        if train:
            # Wrong input shows before the first run, and forked runs share the data
            samples.update(_built(study))

        pilots = study.pilots()
        if train:
            pilots_to_run = missing(study.selected_of(pilots), out)
            _check_all_begun(pilots_to_run, out, sitting)
            run_cells(
                cells=pilots_to_run,
                out=out,
                workers=processes,
                watch=watch,
                sitting=sitting,
            )
        choices = chosen_rates(study, out, index_there)
        rates = known_rates(study, choices, out)
        if not train:
            _check_rates_are_known(study, rates, out)
        cells = _cells(study, rates)

        # Refuses a folder of another study before anything in it is touched
        to_run = study.selected_of(missing(cells, out, built=train))
        if train:
            _check_all_begun(to_run, out, sitting)
        index = _index(study, choices, cells, out, samples)
        _keep(index, others, out)
        if not train:
            return index

        run_cells(
            cells=to_run,
            out=out,
            workers=processes,
            watch=watch,
            sitting=sitting,
        )
        # Once more: some of them may have diverged.
        index = _index(study, choices, cells, out, samples)
        _keep(index, others, out)
        _check_anything_came_of_it(study, cells, out)
        return index


def _built(study: Study) -> dict[str, int]:
    """Build what the settings' runs need; how many training samples each data set has."""
    samples: dict[str, int] = {}
    for setting in study.settings:
        if setting.planned is not None:
            continue
        run = study.kept.get(setting.config, resolve)
        samples[setting.config.data.name] = len(run.data.x_train)
    return samples


def _check_anything_is_finished(study: Study, out: Path) -> None:
    """Raise InputError where nothing can be shown, before the folder is made, locked or written to."""
    # Their folders do not depend on the learning rates that pilots choose.
    if any(is_done(out, cell) for cell in study.cells({})):
        return
    pilots = study.pilots()
    if not all(is_done(out, pilot) for pilot in pilots):
        raise InputError(
            f"{out}: pilots that choose learning rates are not finished, so nothing can be shown yet"
        )
    raise InputError(f"{out}: no run of this study is finished")


def _check_rates_are_known(
    study: Study, rates: Mapping[str, float | None], out: Path
) -> None:
    """Raise InputError where finished runs would be forgotten: nothing says at which learning rate they were made."""
    by_pilots = {setting.name for setting in study.settings if setting.learning_rates}
    for cell in study.cells({}):
        if cell.setting not in by_pilots:
            # Its configuration has the rate
            continue
        if cell.setting in rates or not is_done(out, cell):
            continue
        raise InputError(
            f"{out}: nothing says at which learning rate {cell.setting} was run: neither finished pilots nor {INDEX} "
            f"nor the configurations of its runs"
        )


def _check_anything_came_of_it(study: Study, cells: Sequence[Cell], out: Path) -> None:
    """Raise RunError where not one run of the table got through a round: there is nothing to compare."""
    for cell in cells:
        folder = out / cell.path
        # One that was not to be trained has neither rounds nor a note that it diverged; a published one has a summary.
        if (folder / ROUNDS).is_file() or (folder / SUMMARY).is_file():
            return
    if cells:
        raise RunError(
            f"every run in {out} diverged in its first round: lower local.learning_rate"
        )

    tried: set[float] = set()
    for setting in study.settings:
        tried.update(setting.learning_rates)
    rates = ", ".join(rate_text(rate) for rate in sorted(tried))
    raise RunError(
        f"every pilot in {out} diverged, whatever the setting and the learning rate ({rates}): add smaller ones to "
        f"study.learning_rates"
    )


def _index_there(out: Path) -> StudyIndex | None:
    """What the folder holds so far; a damaged index is deleted: it would stand in the way, and is written anew."""
    try:
        return read_index(out)
    except InputError as error:
        if is_json(out):
            raise InputError(
                f"{error}, and this study would write its own over it: choose another folder"
            ) from None
        (out / INDEX).unlink()
        return None


def _keep(index: StudyIndex, others: StudyIndex | None, out: Path) -> None:
    if others is not None:
        update = {
            "labels": {**others.labels, **index.labels},
            "choices": {**others.choices, **index.choices},
            "diverged": {**others.diverged, **index.diverged},
        }
        index = index.model_copy(update=update)

    unknown = {"samples"}
    if index.samples:
        unknown = set()
    content = index.model_dump_json(indent=2, exclude=unknown)
    write_atomically(out / INDEX, content + "\n")


def missing(cells: Sequence[Cell], out: Path, *, built: bool = True) -> list[Cell]:
    """Those that are neither finished nor known to diverge; what is there must be of this study.

    Arguments:
        cells: The runs of the study.
        out: Its folder.
        built: Whether runs may be built to be compared with those that are there, for which the data is needed.
    """
    found: list[Cell] = []
    changes: dict[str, None] = {}  # each sentence once
    for cell in cells:
        if not is_done(out, cell):
            found.append(cell)
            continue
        for sentence in check_same_config(out, cell, built=built):
            changes[sentence] = None

    for sentence in changes:
        print(f"fedlama: {sentence}", file=sys.stderr)
    return found


def _check_all_begun(cells: Sequence[Cell], out: Path, sitting: Sitting | None) -> None:
    """Refuse begun runs of another configuration; whether their checkpoints are whole shows when they go on."""
    for cell in cells:
        run = unfinished(cell, out, sitting)
        check_begun(run, with_checkpoints=False)


def _cells(study: Study, rates: Mapping[str, float | None]) -> list[Cell]:
    """The runs of the table, without settings that diverged at every learning rate or whose pilots are to come."""
    without_a_rate: set[str] = set()
    for setting in study.settings:
        if setting.learning_rates and rates.get(setting.name) is None:
            without_a_rate.add(setting.name)

    cells: list[Cell] = []
    for cell in study.cells(rates):
        if cell.setting not in without_a_rate:
            cells.append(cell)
    return cells


def _index(
    study: Study,
    choices: Mapping[str, Choice],
    cells: Sequence[Cell],
    out: Path,
    samples: Mapping[str, int],
) -> StudyIndex:
    labels: dict[str, str] = {}
    diverged: dict[str, str] = {}
    for cell in cells:
        name = cell.path.as_posix()
        labels[name] = cell.setting
        file = out / cell.path / DIVERGED
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            diverged[name] = text.strip()

    return StudyIndex(
        baseline=study.options.baseline,
        labels=labels,
        choices=dict(choices),
        diverged=diverged,
        note=study.note,
        samples=dict(samples),
    )
