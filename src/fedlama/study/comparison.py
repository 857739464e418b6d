"""What settings reached and sent, side by side: a table in text and HTML, a data frame, a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from fedlama.base import InputError, shown
from fedlama.run.curves import draw_curves
from fedlama.run.recorded import RecordedRun
from fedlama.run.texts import aligned, html_row, plain_score
from fedlama.study.pairs import PairedDifference, paired_scores
from fedlama.training.records import Measure, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    runs: Mapping[str, tuple[RecordedRun, ...]]
    diverged: Mapping[str, int]

    @property
    def settings(self) -> list[SettingScores]:
        """One row per setting, with shares of the baseline's bytes and differences to it."""
        return [self._row(name) for name in self.runs]

    def __getitem__(self, name: str) -> SettingScores:
        if name not in self.runs:
            raise InputError(
                f"there is no setting {shown(name)}; there are {', '.join(self.runs)}"
            )
        return self._row(name)

    def to_frame(self) -> Any:
        """One row per setting as a pandas DataFrame."""
        if find_spec("pandas") is None:
            raise InputError(
                "to_frame needs pandas, which is not installed: run `pip install pandas`"
            )
        pandas: Any = import_module("pandas")
        rows = [_plain(row) for row in self.settings]
        return pandas.DataFrame(rows)

    def plot(self) -> Figure:
        """The first seed of every setting, over bytes and over steps, as a matplotlib figure."""
        firsts: dict[str, list[Record]] = {}
        for name, runs in self.runs.items():
            # A setting whose runs all diverged has no curve.
            if runs:
                first = runs[0]
                firsts[name] = first.records
        return draw_curves(firsts, self.measure)

    def __repr__(self) -> str:
        table = [self._titles()]
        for row in self.settings:
            cells = self._cells(row)
            table.append(cells)

        lines = aligned(table)
        lines += self._notes()
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        titles = html_row("th", self._titles())
        rows = [titles]
        for row in self.settings:
            cells = self._cells(row)
            rows.append(html_row("td", cells))
        table = "".join(rows)

        notes = ""
        for note in self._notes():
            notes += f"<p>{escape(note)}</p>"
        return f"<table>{table}</table>{notes}"

    def _notes(self) -> list[str]:
        """How to read the two kinds of ±; nothing where one seed has neither."""
        if all(row.deviation is None for row in self.settings):
            return []
        scores = "Scores are mean ± sample standard deviation over seeds"
        differences = (
            f"differences are to {self.baseline}, seed by seed: mean ± standard error"
        )
        return [f"{scores}; {differences}."]

    def _titles(self) -> list[str]:
        measure = self.measure
        if measure is None:
            what = "test loss (lower is better)"
        elif measure.higher_is_better:
            what = measure.name
        else:
            what = f"{measure.name} (lower is better)"
        return [
            "setting",
            "seeds",
            what,
            f"− {self.baseline}",
            f"uplink, of {self.baseline}",
            "all bytes",
        ]

    def _cells(self, row: SettingScores) -> list[str]:
        measure = self.measure
        if measure is None:
            measure = Measure("test loss", higher_is_better=False)

        seeds = str(len(row.seeds))
        diverged = self.diverged.get(row.name, 0)
        if diverged:
            seeds += f" ({diverged} diverged)"

        score = "–"
        if row.score is not None:
            score = plain_score(row.score, measure)
        if row.deviation is not None:
            score += f" ± {plain_score(row.deviation, measure)}"

        return [
            row.name,
            seeds,
            score,
            _difference(row.difference, measure),
            _percent(row.uplink),
            _percent(row.total),
        ]

    def _row(self, name: str) -> SettingScores:
        scores = self._scores(name)
        values = list(scores.values())
        mean = None
        if values:
            mean = fmean(values)
        deviation = None
        if len(values) > 1:
            deviation = stdev(values)

        difference = None
        if name != self.baseline:
            baseline_scores = self._scores(self.baseline)
            difference = paired_scores(scores, baseline_scores)
        return SettingScores(
            name=name,
            seeds=tuple(run.seed for run in self.runs[name]),
            score=mean,
            deviation=deviation,
            difference=difference,
            uplink=self._share(name, "uplink_bytes"),
            total=self._share(name, "uplink_bytes", "downlink_bytes"),
        )

    def _scores(self, name: str) -> dict[int, float]:
        found: dict[int, float] = {}
        for run in self.runs[name]:
            summary = run.summary
            assert summary is not None, "only finished runs are here"
            score = summary.score
            # Settings with different metrics have only the loss in common.
            if self.measure is None:
                score = summary.loss
            if score is not None:
                found[run.seed] = score
        return found

    def _share(self, name: str, *fields: str) -> float:
        runs = self.runs[name]
        baseline_runs = self.runs[self.baseline]
        own = _mean_bytes(runs, fields)
        whole = _mean_bytes(baseline_runs, fields)
        if not whole:
            return math.nan
        return own / whole


def _mean_bytes(runs: Sequence[RecordedRun], fields: Sequence[str]) -> float:
    totals: list[int] = []
    for run in runs:
        total = sum(getattr(run.summary, name) for name in fields)
        totals.append(total)

    if not totals:
        return math.nan
    return fmean(totals)


def _difference(difference: PairedDifference | None, measure: Measure) -> str:
    if difference is None:
        return ""
    if measure.is_accuracy:
        scale = 100
        digits = 2
        unit = " points"
    else:
        scale = 1
        digits = 3
        unit = ""

    mean = scale * difference.mean
    text = f"{mean:+.{digits}f}".replace("-", "−")
    is_zero = float(f"{mean:.{digits}f}") == 0
    if is_zero:
        text = f"{0:.{digits}f}"  # a sign would say that there is a difference
    if difference.error is not None:
        error = scale * difference.error
        text += f" ± {error:.{digits}f}"
    return text + unit


def _percent(share: float) -> str:
    if math.isnan(share):
        return "–"
    return f"{share:.1%}"


def _plain(row: SettingScores) -> dict[str, Any]:
    mean = None
    standard_error = None
    if row.difference is not None:
        mean = row.difference.mean
        standard_error = row.difference.error
    return {
        "setting": row.name,
        "seeds": len(row.seeds),
        "score": row.score,
        "deviation": row.deviation,
        "difference": mean,
        "standard_error": standard_error,
        "uplink_share": row.uplink,
        "total_share": row.total,
    }
