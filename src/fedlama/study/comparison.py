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
from fedlama.run.recorded import Run
from fedlama.run.result import score_text
from fedlama.study.pairs import PairedDifference, paired_scores
from fedlama.training.records import Measure

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
