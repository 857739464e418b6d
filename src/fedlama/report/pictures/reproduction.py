"""The paper's figures drawn from our runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase

from fedlama.paper.reproduce import Reproduction
from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.crossings import crossings
from fedlama.report.numbers.reproduction import PanelOutcome
from fedlama.report.pictures.charts import Chart
from fedlama.report.pictures.crossings import crossing_chart
from fedlama.report.pictures.frontier import frontier_chart
from fedlama.report.pictures.layers import layer_chart
from fedlama.report.pictures.overview import standing_alone
from fedlama.report.pictures.scores import score_charts
from fedlama.report.pictures.style import svg
from fedlama.run.files import write_atomically


def draw_figures(
    made: Reproduction, outcomes: Sequence[PanelOutcome], folder: Path
) -> list[Path]:
    """One SVG per panel, for crossings one per setting; of a table, what was reached over bytes. Their paths.

    Arguments:
        made: the table or figure of the paper.
        outcomes: what came of each of its panels.
        folder: made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for position, outcome in enumerate(outcomes):
        place = position
        if len(outcomes) < len(made.panels):
            # By its place in the paper, although panels before it are not finished
            place = made.panels.index(outcome.panel)
        letter = ""
        if max(len(outcomes), len(made.panels)) > 1:
            letter = ascii_lowercase[place]
        charts = _charts(made, outcome.comparison)
        for number, chart in enumerate(charts, start=1):
            name = f"{made.file_name}{letter}"
            if len(charts) > 1:
                name += f"-{number}"
            path = folder / f"{name}.svg"
            _write(chart, made, outcome, path)
            paths.append(path)
    return paths


def _write(chart: Chart, made: Reproduction, outcome: PanelOutcome, path: Path) -> None:
    panel = f"{outcome.panel.title}{_one_seed(outcome)}"
    title = f"{chart.title}\n{panel}"
    legend = outcome.comparison
    if made.draw == "crossing":
        # Its curves are named where they are
        legend = None
    figure = standing_alone(chart.figure, title, legend)
    write_atomically(path, svg(figure))


def _one_seed(outcome: PanelOutcome) -> str:
    """A picture without a spread says why."""
    for setting in outcome.comparison.settings:
        if len(setting.seeds) > 1:
            return ""
    return ", one seed"


def _charts(made: Reproduction, comparison: RunComparison) -> list[Chart]:
    """The report's charts that show what the paper's figure shows."""
    if made.draw == "crossing":
        return [
            crossing_chart(one, number)
            for number, one in enumerate(crossings(comparison), start=1)
        ]
    if made.draw == "curves":
        return score_charts(comparison)[:1]  # over steps

    if made.draw == "aggregations":
        chart = layer_chart(comparison, "aggregations")
    elif made.draw == "sizes":
        chart = layer_chart(comparison, "uplink_bytes")
    else:
        chart = frontier_chart(comparison)
    if chart is None:
        return []
    return [chart]
