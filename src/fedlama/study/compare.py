"""`fedlama.compare`: a study in Python. Its folder is a study's, which `fedlama report` draws."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from fedlama.base import MAX_SEED, InputError, check_whole, shown
from fedlama.core import Policy
from fedlama.run.api import DEFAULTS, plan
from fedlama.run.curves import draw_curves
from fedlama.run.directory import Run
from fedlama.run.resolve import Resolved
from fedlama.run.result import score_text
from fedlama.study.cells import Watch
from fedlama.study.execute import run_study
from fedlama.study.pairs import PairedDifference, paired_scores
from fedlama.study.plan import announce
from fedlama.study.progress import study_progress
from fedlama.study.runs import load_run
from fedlama.study.study_file import Cell, Setting, Study, StudySection, check_names
from fedlama.training import Participation
from fedlama.training.arguments import check_flag, check_numbers
from fedlama.training.records import Measure, Summary
from fedlama.training.simulation import participation_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCE = "fedlama.compare"
NEEDED = ("model", "data", "policy", "local", "iterations")
OTHERS = ("server", "partition", "participation", "window", "metric", "checkpoint_minutes")


@dataclass(frozen=True)
class SettingScores:
    """One row of a comparison; means are over its finished runs.

    Arguments:
        name: Of the setting.
        seeds: Of its finished runs.
        score: The mean of what the settings are compared by; None where no run has it.
        deviation: Its standard deviation over seeds; None for fewer than two.
        difference: To the baseline, seed by seed; None for the baseline itself.
        uplink: Uplink bytes as a share of the baseline's.
        total: Bytes up and down as a share of the baseline's.
    """

    name: str
    seeds: tuple[int, ...]
    score: float | None
    deviation: float | None
    difference: PairedDifference | None
    uplink: float
    total: float


@dataclass(frozen=True, repr=False)
class Comparison:
    """What a comparison showed, setting by setting.

    Arguments:
        folder: Where its runs are; `fedlama report` draws it.
        baseline: The setting that the others are compared with.
        measure: What they are compared by; None for the test loss.
        runs: The finished runs of each setting, in the order of their seeds.
        diverged: By setting, how many of its runs diverged.
    """

    folder: Path
    baseline: str
    measure: Measure | None
    runs: Mapping[str, tuple[Run, ...]]
    diverged: Mapping[str, int]

    @property
    def settings(self) -> list[SettingScores]:
        """One row per setting, with shares of the baseline's bytes and differences to it."""
        return [self._row(name) for name in self.runs]

    def __getitem__(self, name: str) -> SettingScores:
        if name not in self.runs:
            raise InputError(f"there is no setting {shown(name)}; there are {', '.join(self.runs)}")
        return self._row(name)

    def to_frame(self) -> Any:
        """One row per setting as a pandas DataFrame."""
        if find_spec("pandas") is None:
            raise InputError("to_frame needs pandas, which is not installed: run `pip install pandas`")
        pandas: Any = import_module("pandas")
        return pandas.DataFrame([_plain(row) for row in self.settings])

    def plot(self) -> Figure:
        """The first seed of every setting, over bytes and over steps, as a matplotlib figure."""
        firsts = {name: runs[0].records for name, runs in self.runs.items() if runs}
        return draw_curves(firsts, self.measure)

    def __repr__(self) -> str:
        rows = [self._cells(row) for row in self.settings]
        table = [self._titles(), *rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        lines: list[str] = []
        for row in table:
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            lines.append("  ".join(padded).rstrip())
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        titles = "".join(f"<th>{escape(title)}</th>" for title in self._titles())
        rows: list[str] = []
        for row in self.settings:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in self._cells(row))
            rows.append(f"<tr>{cells}</tr>")
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes())
        return f"<table><tr>{titles}</tr>{''.join(rows)}</table>{notes}"

    def _notes(self) -> list[str]:
        """How to read the two kinds of ±; nothing where one seed has neither."""
        if all(row.deviation is None for row in self.settings):
            return []
        scores = "Scores are mean ± sample standard deviation over seeds"
        differences = f"differences are to {self.baseline}, seed by seed: mean ± standard error"
        return [f"{scores}; {differences}."]

    def _titles(self) -> list[str]:
        what = "test loss" if self.measure is None else self.measure.name
        if self.measure is None or not self.measure.higher_is_better:
            what += " (lower is better)"
        return ["setting", "seeds", what, f"− {self.baseline}", f"uplink, of {self.baseline}", "all bytes"]

    def _cells(self, row: SettingScores) -> list[str]:
        diverged = self.diverged.get(row.name, 0)
        seeds = str(len(row.seeds))
        if diverged:
            seeds += f" ({diverged} diverged)"
        measure = self.measure or Measure("test loss", higher_is_better=False)
        score = "–"
        if row.score is not None:
            score = score_text(row.score, measure)
            if row.deviation is not None:
                score += f" ± {score_text(row.deviation, measure)}"
        return [row.name, seeds, score, _difference(row.difference, measure), _percent(row.uplink), _percent(row.total)]

    def _row(self, name: str) -> SettingScores:
        runs = self.runs[name]
        scores = self._scores(name)
        values = list(scores.values())
        difference = None
        if name != self.baseline:
            difference = paired_scores(scores, self._scores(self.baseline))
        return SettingScores(
            name=name,
            seeds=tuple(run.seed for run in runs),
            score=fmean(values) if values else None,
            deviation=stdev(values) if len(values) > 1 else None,
            difference=difference,
            uplink=self._share(name, "uplink_bytes"),
            total=self._share(name, "uplink_bytes", "downlink_bytes"),
        )

    def _scores(self, name: str) -> dict[int, float]:
        found: dict[int, float] = {}
        for run in self.runs[name]:
            assert run.summary is not None, "only finished runs are here"
            score = run.summary.loss if self.measure is None else run.summary.score
            if score is not None:
                found[run.seed] = score
        return found

    def _share(self, name: str, *fields: str) -> float:
        own = _mean_bytes(self.runs[name], fields)
        whole = _mean_bytes(self.runs[self.baseline], fields)
        if not whole:
            return math.nan
        return own / whole


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
        out: The study's folder. Its page and picture are not drawn here: `fedlama report DIR` does.
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
    first = next(iter(arguments))
    if baseline is not None and baseline not in arguments:
        raise InputError(f"baseline={shown(baseline)} is none of the settings: {', '.join(arguments)}")
    study = _study(arguments, numbers, baseline or first)
    folder = Path(out)
    with _watching(study, folder, workers, progress) as watch:
        run_study(study, folder, workers, watch)
    return _comparison(study, folder, baseline or first)


@dataclass(frozen=True)
class PythonStudy(Study):
    """A study whose runs are built already."""

    table: tuple[Cell, ...] = ()

    def cells(self, chosen: Mapping[str, float | None]) -> list[Cell]:
        """The runs of the table; learning rates are not chosen here."""
        return list(self.table)


def _arguments(settings: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each setting is simulated with; a name that `simulate` does not know is refused."""
    if not isinstance(settings, Mapping) or not settings:
        raise InputError(f"compare needs settings by name, such as {{'FedAvg': {{…}}}}, not {shown(settings)}")
    known = {*NEEDED, *OTHERS, *DEFAULTS}
    found: dict[str, dict[str, Any]] = {}
    for name, own in settings.items():
        if not isinstance(own, Mapping):
            raise InputError(f"{shown(name)} must have arguments of fedlama.simulate in a dictionary, not {shown(own)}")
        together = {**common, **own}
        for argument in together:
            if argument not in known:
                raise InputError(
                    f"{shown(name)}: {shown(argument)} is no argument of fedlama.simulate that a study takes"
                )
        for argument in NEEDED:
            if argument not in together:
                raise InputError(f"{shown(name)} needs {argument}=, for itself or for all settings")
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
        check_whole("a seed", number, minimum=0, maximum=MAX_SEED)
    return numbers


def _study(arguments: Mapping[str, dict[str, Any]], seeds: Sequence[int], baseline: str) -> PythonStudy:
    window = _common_window(arguments)
    settings: list[Setting] = []
    planned: dict[str, list[Resolved]] = {}
    for name, own in arguments.items():
        who = _participation(own, window)
        rest = {key: value for key, value in own.items() if key not in ("model", "data", "participation", "window")}
        planned[name] = []
        for seed in seeds:
            run = plan(own["model"], own["data"], participation=who, **{**rest, "seed": seed})
            planned[name].append(run)
        first = planned[name][0]
        settings.append(Setting(name, first.config, tuple(seeds), (), planned=first))
    options = StudySection(seeds=list(seeds), baseline=baseline)
    check_names(settings, options, SOURCE)
    cells: list[Cell] = []
    for number, seed in enumerate(seeds):
        for setting in settings:
            run = planned[setting.name][number]
            path = Path(setting.folder) / f"seed{seed}"
            cells.append(Cell(setting.name, path, run.config, planned=run))
    return PythonStudy(tuple(settings), options, table=tuple(cells))


def _common_window(arguments: Mapping[str, dict[str, Any]]) -> int:
    """Who trains must not depend on the policy: a cohort stays for a whole number of every setting's cycles."""
    cycles: list[int] = []
    for name, own in arguments.items():
        policy = own["policy"]
        if isinstance(policy, type) or not isinstance(policy, Policy):
            raise InputError(
                f"{shown(name)}: policy must be made with fedlama.FedAvg(…) or the like, not {shown(policy)}"
            )
        cycles.append(policy.longest_cycle)
    return math.lcm(*cycles)


def _participation(own: Mapping[str, Any], window: int) -> Participation:
    who = participation_of(own.get("participation", 1.0), own.get("window"))
    if who.window is None:
        return replace(who, window=window)
    return who


@contextmanager
def _watching(study: Study, folder: Path, workers: int | None, wanted: bool) -> Iterator[Watch]:
    if not wanted:
        yield lambda cell, news: None
        return
    announce([(study, folder)], workers)
    with study_progress([(study, folder)]) as display:
        yield display


def _comparison(study: PythonStudy, folder: Path, baseline: str) -> Comparison:
    runs: dict[str, list[Run]] = {setting.name: [] for setting in study.settings}
    diverged: dict[str, int] = {}
    measures: list[Measure | None] = []
    for cell in study.table:
        run = _finished(folder / cell.path)
        if run is None:
            diverged[cell.setting] = diverged.get(cell.setting, 0) + 1
            continue
        runs[cell.setting].append(run)
        assert run.summary is not None
        measures.append(_measure_of(run.summary))
    measure = measures[0] if measures else None
    if any(other != measure for other in measures):
        measure = None  # settings with different metrics have only the loss in common
    frozen = {name: tuple(own) for name, own in runs.items()}
    return Comparison(folder=folder, baseline=baseline, measure=measure, runs=frozen, diverged=diverged)


def _measure_of(summary: Summary) -> Measure | None:
    if summary.score is None:
        return None
    return summary.metric


def _finished(path: Path) -> Run | None:
    """A run with a summary; one that diverged has none."""
    if not (path / "config.toml").is_file():
        return None
    run = load_run(path)
    if run.summary is None:
        return None
    return run


def _mean_bytes(runs: Sequence[Run], fields: Sequence[str]) -> float:
    totals: list[int] = []
    for run in runs:
        totals.append(sum(getattr(run.summary, name) for name in fields))
    return fmean(totals) if totals else math.nan


def _difference(difference: PairedDifference | None, measure: Measure) -> str:
    if difference is None:
        return ""
    scale, digits, unit = 1, 3, ""
    if measure.is_accuracy:
        scale, digits, unit = 100, 1, " points"
    text = f"{scale * difference.mean:+.{digits}f}".replace("-", "−")
    if not float(f"{scale * difference.mean:.{digits}f}"):
        text = f"{0:.{digits}f}"  # a sign would say that there is a difference
    if difference.error is not None:
        text += f" ± {scale * difference.error:.{digits}f}"
    return text + unit


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.1%}"


def _plain(row: SettingScores) -> dict[str, Any]:
    return {
        "setting": row.name,
        "seeds": len(row.seeds),
        "score": row.score,
        "deviation": row.deviation,
        "difference": None if row.difference is None else row.difference.mean,
        "standard_error": None if row.difference is None else row.difference.error,
        "uplink_share": row.uplink,
        "total_share": row.total,
    }
