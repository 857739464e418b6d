"""The paper's table beside ours, and its figures drawn from our runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from fedlama.paper.reproduce import Panel, Reproduction, Row
from fedlama.report.charts import Chart
from fedlama.report.comparison import Comparison, Setting
from fedlama.report.crossings import crossings
from fedlama.report.formats import UNKNOWN, percent, seeds_text, spread_text
from fedlama.report.frontier import equal_bytes
from fedlama.report.grids import Grid
from fedlama.report.layer_charts import crossing_chart, layer_chart
from fedlama.report.pairs import difference_note, difference_text, paired_difference
from fedlama.report.plots import standing_alone
from fedlama.report.score_charts import frontier_chart, score_charts
from fedlama.report.study_table import choice_notes, learning_rate
from fedlama.report.style import svg
from fedlama.run.files import write_atomically
from fedlama.study.index import StudyIndex


@dataclass(frozen=True)
class Outcome:
    """What came of a panel's study."""

    panel: Panel
    comparison: Comparison
    index: StudyIndex


def reproduction_grid(made: Reproduction, outcomes: Sequence[Outcome]) -> Grid:
    """The paper's figures beside ours, group by group."""
    rows: list[list[str]] = []
    records: list[dict[str, object]] = []
    parts: dict[int, str] = {}
    for outcome in outcomes:
        parts[len(rows)] = outcome.panel.title
        for setting in outcome.comparison.settings:
            rows.append(_cells(setting, outcome))
            records.append(_record(setting, outcome))
    return Grid(
        headings=[
            "setting",
            "paper: accuracy",
            "cost",
            "rate",
            "here: accuracy",
            "difference",
            "cost",
            "rate",
            "seeds",
        ],
        rows=rows,
        notes=_notes(made, outcomes),
        records=records,
        parts=parts,
        caption=f"{made.title}, at the scale {made.scale!r}",
        narrow=[0, 1, 2, 4, 5, 6, 8],  # without learning rates it fits eighty columns
    )


def _row(setting: Setting, outcome: Outcome) -> Row | None:
    return next((row for row in outcome.panel.rows if row.name == setting.label), None)


def _cells(setting: Setting, outcome: Outcome) -> list[str]:
    row = _row(setting, outcome)
    paper = [UNKNOWN] * 3
    if row is not None:
        cost = UNKNOWN if row.cost is None else f"{row.cost:.2f} %"
        paper = [f"{row.accuracy:.2f} ± {row.spread:g} %", cost, f"{row.rate:g}"]
    comparison = outcome.comparison
    ours = [
        spread_text(comparison.score(setting), comparison.metric),
        difference_text(paired_difference(setting, comparison), comparison.metric),
        percent(setting.relative_cost),
    ]
    return [setting.label, *paper, *ours, learning_rate(setting), seeds_text(setting)]


def _record(setting: Setting, outcome: Outcome) -> dict[str, object]:
    row, score = _row(setting, outcome), outcome.comparison.score(setting)
    difference = paired_difference(setting, outcome.comparison)
    return {
        "group": outcome.panel.title,
        "setting": setting.label,
        "paper_accuracy": None if row is None else row.accuracy / 100,
        "paper_deviation": None if row is None else row.spread / 100,
        "paper_cost": None if row is None or row.cost is None else row.cost / 100,
        "paper_learning_rate": None if row is None else row.rate,
        outcome.comparison.metric: None if score is None else score.mean,
        "deviation": None if score is None else score.deviation,
        "difference": None if difference is None else difference.mean,
        "difference_error": None if difference is None else difference.error,
        "relative_cost": setting.relative_cost,
        "uplink_bytes": setting.uplink_bytes,
        "downlink_bytes": setting.downlink_bytes,
        "learning_rate": setting.config["local.learning_rate"],
        "seeds": " ".join(map(str, setting.seeds)),
    }


def _notes(made: Reproduction, outcomes: Sequence[Outcome]) -> list[str]:
    """What was scaled down, what the paper is not consistent in, and who wins at equal bytes."""
    found: list[str] = []
    for outcome in outcomes:
        if outcome.panel.scaled:
            found.append(f"{outcome.panel.title}: {'; '.join(outcome.panel.scaled)}.")
        differences = difference_note(outcome.comparison)
        if differences is not None:
            found.append(f"{outcome.panel.title}: {differences}")
        found += [f"{outcome.panel.title}: {told}" for told in _long_shares(outcome)]
        found += [f"{outcome.panel.title}: {told}" for told in equal_bytes(outcome.comparison)]
        found += [f"{outcome.panel.title}: {note}" for note in choice_notes(outcome.index)[1:]]
    if made.scale == "cpu":
        found.append("Scaled down: the accuracies here are not the paper's and are not to be read as such.")
    return [*found, *(f"The paper: {remark}" for remark in made.remarks)]


def _long_shares(outcome: Outcome) -> list[str]:
    """What the costs say of the layers: the paper prints no shares, but its costs imply them."""
    said: list[str] = []
    for setting in outcome.comparison.settings:
        row = _row(setting, outcome)
        if row and row.factor > 1 and row.cost and setting.relative_cost:
            ours, theirs = (long_share(cost, row.factor) for cost in (setting.relative_cost, row.cost / 100))
            said.append(
                f"{setting.label}'s cost is that of {percent(ours, 1)} of the parameters long all the time, the "
                f"paper's that of {percent(theirs, 1)}."
            )
    return said


def long_share(cost: float, factor: int) -> float:
    """The share s of the parameters that, averaged `factor` times less often, gives this cost: 1 − s + s / factor."""
    return (1 - cost) / (1 - 1 / factor)


def draw_figures(made: Reproduction, outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """One SVG a panel, for crossings one a setting; of a table, what was reached over bytes. Their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = ascii_lowercase[: len(outcomes)] if len(outcomes) > 1 else [""]
    paths: list[Path] = []
    for letter, outcome in zip(letters, outcomes, strict=True):
        charts = _charts(made, outcome.comparison)
        for number, chart in enumerate(charts, start=1):
            name = f"{made.file_name}{letter}{f'-{number}' if len(charts) > 1 else ''}.svg"
            legend = None if made.draw == "crossing" else outcome.comparison  # its curves are named where they are
            figure = standing_alone(chart.figure, f"{chart.title}\n{outcome.panel.title}{_alone(outcome)}", legend)
            write_atomically(folder / name, svg(figure))
            paths.append(folder / name)
    return paths


def _alone(outcome: Outcome) -> str:
    """A picture without a spread says why."""
    return ", one seed" if all(len(setting.seeds) == 1 for setting in outcome.comparison.settings) else ""


def _charts(made: Reproduction, comparison: Comparison) -> list[Chart]:
    """The report's charts that show what the paper's figure shows."""
    if made.draw == "crossing":
        return [crossing_chart(one, number) for number, one in enumerate(crossings(comparison), start=1)]
    if made.draw == "curves":
        return score_charts(comparison)[:1]  # over steps
    layers = {"aggregations": "aggregations", "sizes": "uplink_bytes"}
    chart = layer_chart(comparison, layers[made.draw]) if made.draw else frontier_chart(comparison)
    return [chart] if chart else []
