"""`fedlama.compare`: a study in Python, with the folder, tables and page of one."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedlama.base import (
    InputError,
    annotated_fields,
    check_flag,
    check_option,
    check_whole,
    shown,
)
from fedlama.core.policy_checks import check_policy
from fedlama.run.directory import CONFIG
from fedlama.run.planning import plan
from fedlama.run.recorded import RecordedRun
from fedlama.run.resolve import Resolved
from fedlama.study.cells import OnNews
from fedlama.study.comparison import Comparison
from fedlama.study.execute import run_study
from fedlama.study.index import StudyIndex
from fedlama.study.plan import announce
from fedlama.study.progress import study_progress
from fedlama.study.runs import load_run
from fedlama.study.settings import Cell, Setting, Study, StudySection
from fedlama.study.study_file import check_names
from fedlama.training import Participation
from fedlama.training.arguments import check_numbers
from fedlama.training.options import RunOptions, participation_of
from fedlama.training.records import Measure, Summary

SOURCE = "fedlama.compare"
NEEDED = ("model", "data", "policy", "local", "iterations")
CODED = ("uplink", "downlink")
OTHERS = ("server", "partition", "participation", "window", "faults", "loss", "metric")
OPTIONS = tuple(annotated_fields(RunOptions))


def compare(
    settings: Mapping[str, Mapping[str, Any]],
    *,
    seeds: int | Sequence[int] = 3,
    out: str | os.PathLike[str],
    baseline: str | None = None,
    workers: int | None = None,
    progress: bool = False,
    **common: Any,
) -> Comparison:
    """Train settings over seeds, each with the same clients, batches and initial weights, and compare them.

    Runs go side by side, each in a process of its own. What `out` holds already is not trained again, and what was
    interrupted goes on.

    Arguments:
        settings: For each setting, by its name, the arguments of `fedlama.simulate` in which it differs from the
            others, such as `{"FedAvg": {"policy": fedlama.FedAvg(6)}, "frugal": fedlama.presets.frugal()}`.
        seeds: How many seeds, from 0, or which ones.
        out: The study's folder, with its tables and its report page at the end.
        baseline: The setting that the others are compared with (default: the first).
        workers: How many processes may run at a time (default: one per GPU, or one per core).
        progress: Whether what it will take, and then its progress, is shown on standard error.
        common: Arguments of `fedlama.simulate` that all settings share, such as `model`, `data`, `local` and
            `iterations`. Unless a window is given, a cohort stays for the least common multiple of all cycles.

    Returns:
        What each setting reached and sent, with paired differences to the baseline.
    """
    check_flag("progress", progress)
    check_numbers(workers=workers)
    arguments = _arguments(settings, common)
    numbers = _seeds(seeds)
    if baseline is not None and baseline not in arguments:
        names = ", ".join(arguments)
        raise InputError(f"baseline={shown(baseline)} is none of the settings: {names}")
    first = next(iter(arguments))
    compared_with = baseline or first

    study = _study(arguments, numbers, compared_with)
    folder = Path(out)
    with _watching(study, folder, workers, progress) as watch:
        index = run_study(study, folder, workers, watch)
    _write_report(folder, index)
    return _comparison(study, folder, compared_with)


def _write_report(folder: Path, index: StudyIndex) -> None:
    """The page of the runs, and their table as Markdown, CSV and LaTeX."""
    # Imported here, because checking arguments should not wait for a plotting library.
    from fedlama.report.page.studies import draw_study
    from fedlama.report.tables.study import study_grid

    numbers, _ = draw_study(folder, index)
    grid = study_grid(numbers, index)
    grid.write(folder, "table")


@dataclass(frozen=True)
class PythonStudy(Study):
    """A study whose runs are built already."""

    table: tuple[Cell, ...] = ()

    def cells(self, chosen: Mapping[str, float | None]) -> list[Cell]:
        """The runs of the table; learning rates are not chosen here."""
        return list(self.table)


def _arguments(
    settings: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What each setting is simulated with; a name that `simulate` does not know is refused."""
    if not isinstance(settings, Mapping) or not settings:
        raise InputError(
            f"compare needs settings by name, such as {{'FedAvg': {{…}}}}, not {shown(settings)}"
        )
    known = {*NEEDED, *CODED, *OTHERS, *OPTIONS}
    found: dict[str, dict[str, Any]] = {}
    for name, own in settings.items():
        if not isinstance(own, Mapping):
            raise InputError(
                f"{shown(name)} must have arguments of fedlama.simulate in a dictionary, not {shown(own)}"
            )
        together = {**common, **own}
        for argument in together:
            if argument not in known:
                raise InputError(
                    f"{shown(name)}: {shown(argument)} is no argument of fedlama.simulate that a study takes"
                )
        for argument in NEEDED:
            if argument not in together:
                raise InputError(
                    f"{shown(name)} needs {argument}=, for itself or for all settings"
                )
        found[str(name)] = together
    return found


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        numbers = tuple(dict.fromkeys(seeds))
    else:
        check_whole("seeds", seeds, minimum=1)
        numbers = tuple(range(seeds))  # type: ignore[arg-type]

    if not numbers:
        raise InputError("seeds must hold at least one seed")
    for number in numbers:
        check_option(RunOptions, "seed", number, name="a seed")
    return numbers


def _study(
    arguments: Mapping[str, dict[str, Any]], seeds: Sequence[int], baseline: str
) -> PythonStudy:
    window = _common_window(arguments)
    settings: list[Setting] = []
    planned: dict[str, list[Resolved]] = {}
    for name, own in arguments.items():
        runs = _planned(own, seeds, window)
        planned[name] = runs
        first = runs[0]
        setting = Setting(
            name=name,
            config=first.config,
            seeds=tuple(seeds),
            learning_rates=(),
            planned=first,
        )
        settings.append(setting)
    options = StudySection(seeds=list(seeds), baseline=baseline)
    check_names(settings, options, SOURCE)

    # First seeds come first, as in a study that is a file.
    cells: list[Cell] = []
    for number, seed in enumerate(seeds):
        for setting in settings:
            run = planned[setting.name][number]
            folder = Path(setting.folder)
            cell = Cell(
                setting=setting.name,
                path=folder / f"seed{seed}",
                config=run.config,
                planned=run,
            )
            cells.append(cell)
    return PythonStudy(
        settings=tuple(settings),
        options=options,
        table=tuple(cells),
    )


def _planned(
    own: Mapping[str, Any], seeds: Sequence[int], window: int
) -> list[Resolved]:
    """The runs of one setting, one per seed."""
    options: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    for name, given in own.items():
        if name in OPTIONS:
            options[name] = given
        else:
            parts[name] = given
    model = parts.pop("model")
    data = parts.pop("data")
    parts["participation"] = _participation(own, window)
    parts.pop("window", None)  # it is in participation now

    runs: list[Resolved] = []
    for seed in seeds:
        options["seed"] = seed
        run_options = RunOptions(**options)
        run = plan(model, data, run_options, **parts)
        runs.append(run)
    return runs


def _common_window(arguments: Mapping[str, dict[str, Any]]) -> int:
    """Who trains must not depend on the policy: a cohort stays for a whole number of every setting's cycles."""
    cycles: list[int] = []
    for name, own in arguments.items():
        policy = own["policy"]
        check_policy(f"{shown(name)}: policy", policy)
        cycles.append(policy.longest_cycle)
    return math.lcm(*cycles)


def _participation(own: Mapping[str, Any], window: int) -> Participation:
    wanted = own.get("participation", 1.0)
    who = participation_of(wanted, own.get("window"))
    if who.window is not None:
        return who
    return replace(who, window=window)


@contextmanager
def _watching(
    study: Study, folder: Path, workers: int | None, wanted: bool
) -> Iterator[OnNews]:
    if not wanted:
        yield lambda cell, news: None
        return
    announce([(study, folder)], workers)
    with study_progress([(study, folder)]) as display:
        yield display


def _comparison(study: PythonStudy, folder: Path, baseline: str) -> Comparison:
    runs: dict[str, list[RecordedRun]] = {
        setting.name: [] for setting in study.settings
    }
    diverged: dict[str, int] = {}
    measures: list[Measure | None] = []
    for cell in study.table:
        run = _finished(folder / cell.path)
        if run is None:
            before = diverged.get(cell.setting, 0)
            diverged[cell.setting] = before + 1
            continue
        runs[cell.setting].append(run)
        assert run.summary is not None
        measure = _measure_of(run.summary)
        measures.append(measure)

    # Settings with different metrics have only the loss in common.
    common = None
    if measures and all(other == measures[0] for other in measures):
        common = measures[0]
    frozen: dict[str, tuple[RecordedRun, ...]] = {}
    for name, own in runs.items():
        frozen[name] = tuple(own)
    return Comparison(
        folder=folder,
        baseline=baseline,
        measure=common,
        runs=frozen,
        diverged=diverged,
    )


def _measure_of(summary: Summary) -> Measure | None:
    if summary.score is None:
        return None
    return summary.metric


def _finished(path: Path) -> RecordedRun | None:
    """A run with a summary; one that diverged has none."""
    if not (path / CONFIG).is_file():
        return None
    run = load_run(path)
    if run.summary is None:
        return None
    return run
