"""Running a study: pilots choose learning rates, then every missing cell of the table is run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from fedlama.base import InputError, RunError
from fedlama.processes.devices import default_workers
from fedlama.run.directory import ROUNDS
from fedlama.run.files import locked, write_atomically
from fedlama.run.resolve import resolve
from fedlama.study.cells import (
    DIVERGED,
    Watch,
    check_same_config,
    is_done,
    run_cells,
    score_of,
)
from fedlama.study.index import INDEX, Choice, StudyIndex, read_index
from fedlama.study.sitting import Sitting
from fedlama.study.study_file import Cell, Setting, Study, rate_text


def run_study(
    study: Study,
    out: Path,
    workers: int | None,
    watch: Watch,
    *,
    shared: bool = False,
    sitting: Sitting | None = None,
) -> StudyIndex:
    """Run what is missing of a study; what its folder then holds of it.

    Arguments:
        study: the settings and their seeds.
        out: the study's folder.
        workers: how many processes may run at a time (default: one per GPU, or one per core).
        watch: called with each record of a cell, and when it ends.
        shared: whether the folder may also hold runs of other studies, which its index then keeps.
        sitting: how long it may take now, and where unfinished runs are kept (default: as long as it takes, in `out`).
    """
    processes = workers or min(
        default_workers(setting.config.train.device) for setting in study.settings
    )
    with locked(out):
        index_there = _index_there(out)
        others = None
        if shared:
            others = index_there
        for setting in study.settings:
            if setting.planned is None:
                # Wrong input shows before the first run, and forked runs share the data
                resolve(setting.config)
        pilots = study.pilots()
        run_cells(missing(pilots, out), out, processes, watch, sitting)
        choices = _choices(study, pilots, out)
        cells = _cells(study, choices)
        # Refuses a folder of another study before anything in it is touched
        to_run = missing(cells, out)
        _keep(_index(study, choices, cells, out), others, out)
        run_cells(to_run, out, processes, watch, sitting)
        index = _index(study, choices, cells, out)
        _keep(index, others, out)
        _check_anything_came_of_it(study, cells, out)
        return index


def _check_anything_came_of_it(study: Study, cells: Sequence[Cell], out: Path) -> None:
    """Raise RunError where not one run of the table got through a round: there is nothing to compare."""
    for cell in cells:
        folder = out / cell.path
        if (folder / ROUNDS).is_file() or not (folder / DIVERGED).is_file():
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
    except InputError:
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
    write_atomically(out / INDEX, index.model_dump_json(indent=2) + "\n")


def missing(cells: Sequence[Cell], out: Path) -> list[Cell]:
    """Those that are neither finished nor known to diverge; what is there must be of this study."""
    found: list[Cell] = []
    changes: dict[str, None] = {}
    for cell in cells:
        if is_done(out, cell):
            changes.update(dict.fromkeys(check_same_config(out, cell)))
        else:
            found.append(cell)
    for sentence in changes:
        print(f"fedlama: {sentence}", file=sys.stderr)
    return found


def _choices(study: Study, pilots: Sequence[Cell], out: Path) -> dict[str, Choice]:
    """What the pilots say of each setting whose learning rate is to be chosen."""
    choices: dict[str, Choice] = {}
    for setting in study.settings:
        if setting.learning_rates:
            choices[setting.name] = choose(setting, pilots, out)
    return choices


def _cells(study: Study, choices: Mapping[str, Choice]) -> list[Cell]:
    """The runs of the table, without settings that diverged at every learning rate."""
    rates = {name: choice.rate for name, choice in choices.items()}
    hopeless = [name for name, rate in rates.items() if rate is None]
    return [cell for cell in study.cells(rates) if cell.setting not in hopeless]


def choose(setting: Setting, pilots: Sequence[Cell], out: Path) -> Choice:
    """The learning rate with the best mean validation metric (or loss, if there is none); of equals the smaller."""
    scores: dict[float, float | None] = {}
    for rate in setting.learning_rates:
        own = [
            pilot
            for pilot in pilots
            if pilot.setting == setting.name and pilot.rate == rate
        ]
        scores[rate] = _mean_score(own, out)
    best: float | None = None
    highest: float | None = None
    for rate in sorted(scores):
        score = scores[rate]
        if score is None:
            continue
        if highest is None or score > highest:
            best = rate
            highest = score
    at_edge = len(scores) > 1 and best in (min(scores), max(scores))
    by_text: dict[str, float | None] = {}
    for rate, score in scores.items():
        by_text[rate_text(rate)] = score
    return Choice(rate=best, scores=by_text, at_edge=at_edge)


def _mean_score(pilots: Sequence[Cell], out: Path) -> float | None:
    """Larger is better; a rate at which one seed diverged is none to choose."""
    scores: list[float] = []
    for pilot in pilots:
        score = score_of(out, pilot)
        if score is None:
            return None
        scores.append(score)
    return fmean(scores)


def _index(
    study: Study, choices: Mapping[str, Choice], cells: Sequence[Cell], out: Path
) -> StudyIndex:
    labels: dict[str, str] = {}
    diverged: dict[str, str] = {}
    for cell in cells:
        name = cell.path.as_posix()
        labels[name] = cell.setting
        text = out / cell.path / DIVERGED
        if text.is_file():
            diverged[name] = text.read_text(encoding="utf-8").strip()
    return StudyIndex(
        baseline=study.options.baseline,
        labels=labels,
        choices=dict(choices),
        diverged=diverged,
        note=study.note,
    )
