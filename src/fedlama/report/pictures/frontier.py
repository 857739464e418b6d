"""Score over all bytes of a run, with a line through FedAvg's settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.frontier import FrontierPoint, fedavg_line, frontier_points
from fedlama.report.pictures.charts import Chart, decades, log_axis, series_list
from fedlama.report.pictures.measures import score
from fedlama.report.pictures.style import (
    GRID,
    MUTED,
    colour,
    marker,
    show_percentages,
    styled,
)
from fedlama.report.words.formats import human_bytes, upper_first
from fedlama.training.records import ACCURACY


def frontier_chart(comparison: RunComparison) -> Chart | None:
    """Score over all bytes of a run, with a line through FedAvg; None with fewer than two settings to compare."""
    found = frontier_points(comparison)
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
        rows=[_row(point) for point in found],
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
            "series": [_marker(point, comparison) for point in found],
            "through": [point.label for point in line],
        },
        figure=frontier_figure(found, line, comparison),
    )


def _marker(point: FrontierPoint, comparison: RunComparison) -> dict[str, Any]:
    series = series_list(comparison, line=False)[point.index]
    series["symbol"] = "circle"
    if point.adapts:
        series["symbol"] = "diamond"
    return series


def _row(point: FrontierPoint) -> list[Any]:
    below = None
    above = None
    if point.deviation is not None:
        below = point.mean - point.deviation
        above = point.mean + point.deviation
    return [
        point.label,
        point.total_bytes,
        point.mean,
        point.deviation,
        below,
        above,
    ]


def _score_range(found: Sequence[FrontierPoint]) -> tuple[float, float]:
    """From the lowest end of an error bar to the highest."""
    low = math.inf
    high = -math.inf
    for point in found:
        deviation = point.deviation or 0.0
        low = min(low, point.mean - deviation)
        high = max(high, point.mean + deviation)

    if high <= low:
        high = low + 0.01
    return low, high


def _byte_range(found: Sequence[FrontierPoint]) -> tuple[float, float]:
    """A little room beside the first and the last setting."""
    totals = [point.total_bytes for point in found]
    fewest = min(totals)
    most = max(totals)
    return fewest / 1.25, most * 1.25


@styled
def frontier_figure(
    found: Sequence[FrontierPoint],
    line: Sequence[FrontierPoint],
    comparison: RunComparison,
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
        [point.total_bytes for point in line],
        [point.mean for point in line],
        color=MUTED,
        linewidth=1.5,
    )
    for point in found:
        look = comparison.settings[point.index].look
        axes.errorbar(
            point.total_bytes,
            point.mean,
            point.deviation,
            fmt=marker(point.adapts),
            color=colour(look),
            markersize=8,
            capsize=4,
        )
    _label_axes(axes, found, comparison)
    return figure


def _what_is_drawn(found: Sequence[FrontierPoint]) -> str:
    """The axis, and what there is beside points."""
    text = "bytes of all clients, up and down\nline: FedAvg"
    if any(point.deviation is not None for point in found):
        # They overlap where differences are clear, because settings share the clients and batches of a seed.
        text += (
            "; bars: one standard deviation over seeds,"
            "\nand not the error of differences, which are paired"
        )
    return text


def _label_axes(
    axes: Axes, found: Sequence[FrontierPoint], comparison: RunComparison
) -> None:
    fewest, most = _byte_range(found)
    axes.set_xscale("log")
    axes.set_xlim(fewest, most)
    axes.set_xlabel(_what_is_drawn(found))
    ticks = LogLocator(subs=(1.0, 2.0, 5.0))
    axes.xaxis.set_major_locator(ticks)
    as_bytes = FuncFormatter(lambda count, _: human_bytes(count))
    axes.xaxis.set_major_formatter(as_bytes)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    if comparison.metric == ACCURACY:
        show_percentages(axes)
