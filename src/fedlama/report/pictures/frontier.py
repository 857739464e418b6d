"""Score over all bytes of a run, with a line through FedAvg's settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.frontier import Place, fedavg_line, places
from fedlama.report.pictures.charts import Chart, decades, log_axis, series_list
from fedlama.report.pictures.measures import score
from fedlama.report.pictures.style import GRID, MUTED, colour, show_percentages, styled
from fedlama.report.words.formats import human_bytes, upper_first
from fedlama.training.records import ACCURACY


def frontier_chart(comparison: RunComparison) -> Chart | None:
    """Score over all bytes of a run, with a line through FedAvg; None with fewer than two settings to compare."""
    found = places(comparison)
    if len(found) < 2:
        return None

    line = fedavg_line(found, comparison)
    metric = comparison.metric
    measure = score(comparison)
    kind = measure.number_format
    lowest, highest = _score_range(found)
    fewest, most = _byte_range(found)
    return Chart(
        id="frontier",
        title=f"{upper_first(metric)} over all bytes of the run",
        columns=[
            "setting",
            "bytes up and down",
            metric,
            "standard deviation",
            "mean − deviation",
            "mean + deviation",
        ],
        formats=["text", "bytes", kind, kind, kind, kind],
        rows=[_row(place) for place in found],
        drawing={
            "kind": "lines",
            "height": 360,
            "at": {"x": 1, "y": 2, "low": 4, "high": 5},
            "tip": [2, 3],
            "range": "bars",
            "x": log_axis(
                "bytes of all clients, up and down", "bytes", fewest, most, decades()
            ),
            "y": measure.axis(lowest, highest),
            "series": [_marker(place, comparison) for place in found],
            "through": [place.label for place in line],
        },
        figure=frontier_figure(found, line, comparison),
    )


def _marker(place: Place, comparison: RunComparison) -> dict[str, Any]:
    series = series_list(comparison, line=False)[place.index]
    series["symbol"] = "circle"
    if place.adapts:
        series["symbol"] = "diamond"
    return series


def _row(place: Place) -> list[Any]:
    below = None
    above = None
    if place.deviation is not None:
        below = place.mean - place.deviation
        above = place.mean + place.deviation
    return [
        place.label,
        place.total_bytes,
        place.mean,
        place.deviation,
        below,
        above,
    ]


def _score_range(found: Sequence[Place]) -> tuple[float, float]:
    """From the lowest end of an error bar to the highest."""
    low = math.inf
    high = -math.inf
    for place in found:
        deviation = place.deviation or 0.0
        low = min(low, place.mean - deviation)
        high = max(high, place.mean + deviation)

    if high <= low:
        high = low + 0.01
    return low, high


def _byte_range(found: Sequence[Place]) -> tuple[float, float]:
    """A little room beside the first and the last setting."""
    totals = [place.total_bytes for place in found]
    fewest = min(totals)
    most = max(totals)
    return fewest / 1.25, most * 1.25


@styled
def frontier_figure(
    found: Sequence[Place], line: Sequence[Place], comparison: RunComparison
) -> Figure:
    """The still picture: points with error bars, and the line through FedAvg.

    Arguments:
        found: the settings.
        line: those of FedAvg by ascending bytes.
        comparison: says which score it is.
    """
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [place.total_bytes for place in line],
        [place.mean for place in line],
        color=MUTED,
        linewidth=1.5,
    )
    for place in found:
        marker = "o"
        if place.adapts:
            marker = "D"
        axes.errorbar(
            place.total_bytes,
            place.mean,
            place.deviation,
            fmt=marker,
            color=colour(place.index),
            markersize=8,
            capsize=4,
        )
    _label_axes(axes, found, comparison)
    return figure


def _label_axes(axes: Axes, found: Sequence[Place], comparison: RunComparison) -> None:
    fewest, most = _byte_range(found)
    axes.set_xscale("log")
    axes.set_xlim(fewest, most)
    axes.set_xlabel("bytes of all clients, up and down")
    ticks = LogLocator(subs=(1.0, 2.0, 5.0))
    axes.xaxis.set_major_locator(ticks)
    as_bytes = FuncFormatter(lambda count, _: human_bytes(count))
    axes.xaxis.set_major_formatter(as_bytes)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    if comparison.metric == ACCURACY:
        show_percentages(axes)
