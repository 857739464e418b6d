"""Running a study: pilots choose learning rates, then every missing cell of the table is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from fedlama.base import InputError
from fedlama.run.execute import available_cores, prepared_data, resolve
from fedlama.run.files import locked, write_atomically
from fedlama.study.cells import DIVERGED, Watch, check_same_config, is_done, run_cells, score_of
from fedlama.study.index import INDEX, Choice, StudyIndex, read_index
from fedlama.study.sitting import Sitting
from fedlama.study.study_file import Cell, Setting, Study


def run_study(
    study: Study,
    out: Path,
    workers: int | None,
    watch: Watch,
    *,
    shared: bool = False,
    sitting: Sitting | None = None,
) -> StudyIndex:
    """Run what is missing of a study into `out`; what the folder then holds of it.

    A `shared` folder may also hold runs of other studies, which its index keeps. A `sitting` limits the time, and may
    have unfinished runs elsewhere.
    """
    with locked(out):
        index_there = _index_there(out)
        others = index_there if shared else None
        for setting in study.settings:  # wrong input shows before the first run, and forked runs share the data
            resolve(setting.config)
            prepared_data(setting.config)
        pilots = study.pilots()
        run_cells(missing(pilots, out), out, workers or available_cores(), watch, sitting)
        choices = {setting.name: choose(setting, pilots, out) for setting in study.settings if setting.learning_rates}
        rates = {name: choice.rate for name, choice in choices.items()}
        cells = [cell for cell in study.cells(rates) if rates.get(cell.setting, 0.0) is not None]
        _keep(_index(study, choices, cells, out), others, out)
        run_cells(missing(cells, out), out, workers or available_cores(), watch, sitting)
        index = _index(study, choices, cells, out)
        _keep(index, others, out)
        return index


def _index_there(out: Path) -> StudyIndex | None:
    """What the folder holds so far; a damaged index goes: it would stand in the way, and is written anew."""
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
    for cell in cells:
        if is_done(out, cell):
            check_same_config(out, cell)
    return [cell for cell in cells if not is_done(out, cell)]


def choose(setting: Setting, pilots: Sequence[Cell], out: Path) -> Choice:
    """The learning rate with the best mean validation accuracy (or loss, if there is none); of equals the smaller."""
    scores = {
        rate: _mean_score([p for p in pilots if (p.setting, p.rate) == (setting.name, rate)], out)
        for rate in setting.learning_rates
    }
    known = {rate: score for rate, score in scores.items() if score is not None}
    best = max(known, key=lambda rate: (known[rate], -rate), default=None)
    at_edge = len(scores) > 1 and best in (min(scores), max(scores))
    return Choice(rate=best, scores={f"{rate:g}": score for rate, score in scores.items()}, at_edge=at_edge)


def _mean_score(pilots: Sequence[Cell], out: Path) -> float | None:
    """Larger is better; a rate at which one seed diverged is none to choose."""
    scores = [score_of(out, pilot) for pilot in pilots]
    if None in scores:
        return None
    return fmean(accuracy if accuracy is not None else -loss for accuracy, loss in filter(None, scores))


def _index(study: Study, choices: Mapping[str, Choice], cells: Sequence[Cell], out: Path) -> StudyIndex:
    texts = {cell.path.as_posix(): out / cell.path / DIVERGED for cell in cells}
    return StudyIndex(
        baseline=study.options.baseline,
        labels={cell.path.as_posix(): cell.setting for cell in cells},
        choices=dict(choices),
        diverged={name: path.read_text(encoding="utf-8").strip() for name, path in texts.items() if path.is_file()},
    )
