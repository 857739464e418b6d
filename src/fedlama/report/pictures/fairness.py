"""The score of every client, the worst first: a line that starts high is fair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.fairness import Fairness
from fedlama.report.pictures.charts import Chart, axis, series_list
from fedlama.report.pictures.measures import MAX_POINTS, CurveMeasure, score
from fedlama.report.pictures.style import GRID, colour, dashes, show_percentages, styled
from fedlama.report.words.formats import upper_first


def fairness_chart(
    found: Sequence[Fairness], comparison: RunComparison
) -> Chart | None:
    """A line per setting over its clients; None where no run has the scores of its clients.

    Arguments:
        found: The settings that were evaluated client by client.
        comparison: Says which metric it is.
    """
    drawn = [one for one in found if one.scores]
    if not drawn:
        return None

    measure = score(comparison)
    every_series = series_list(comparison)
    rows: list[list[Any]] = []
    for one in drawn:
        for share, value in _points(one):
            rows.append([one.label, share, value])
    values = [row[2] for row in rows]
    return Chart(
        id="clients",
        title=f"{upper_first(comparison.metric)} of every client, the worst first",
        columns=["setting", "share of the clients", comparison.metric],
        formats=["text", "percent", measure.number_format],
        rows=rows,
        drawing={
            "kind": "lines",
            "height": 320,
            "at": {"x": 1, "y": 2},
            "tip": [2],
            "x": axis("share of the clients", "percent", min=0, max=1),
            "y": measure.axis(min(values), max(values)),
            "series": [every_series[one.index] for one in drawn],
        },
        figure=fairness_figure(drawn, measure),
    )


def _points(one: Fairness) -> list[tuple[float, float]]:
    """The share of the clients that fare at most so well, and how well: evenly chosen where there are very many."""
    clients = len(one.scores)
    stride = math.ceil(clients / MAX_POINTS)
    points: list[tuple[float, float]] = []
    for place in range(0, clients, stride):
        share = (place + 1) / clients
        score = one.scores[place]
        points.append((share, score))
    # A stride may pass over the client that fares best.
    last = (1.0, one.scores[-1])
    if points[-1] != last:
        points.append(last)
    return points


@styled
def fairness_figure(drawn: Sequence[Fairness], measure: CurveMeasure) -> Figure:
    """The still picture.

    Arguments:
        drawn: The settings.
        measure: What their scores are.
    """
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    axes = figure.subplots()
    for one in drawn:
        shares: list[float] = []
        values: list[float] = []
        for share, value in _points(one):
            shares.append(share)
            values.append(value)
        axes.plot(
            shares,
            values,
            color=colour(one.look),
            linestyle=dashes(one.look),
            linewidth=1.8,
        )

    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the clients")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    if measure.is_share:
        show_percentages(axes)
    return figure
