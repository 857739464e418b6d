"""What was reached: over steps, over bytes sent, and over all bytes of a run with FedAvg's line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedlama.report.charts import Chart, axis, decades, log_axis, round_axis, series_list
from fedlama.report.comparison import Comparison
from fedlama.report.formats import human_bytes
from fedlama.report.frontier import Place, fedavg_line, places
from fedlama.report.plots import late_range, score_figure
from fedlama.report.style import GRID, MUTED, colour, styled

HEIGHT = 340


def score_charts(comparison: Comparison) -> list[Chart]:
    """The learning curves over steps and over bytes; none before the first evaluation."""
    found = late_range(comparison)
    if found is None:
        return []
    score = _score_axis(comparison, *found)
    return [
        _score_chart(comparison, "steps", axis("steps of every client", min=0), score),
        _score_chart(comparison, "uplink_bytes", axis("bytes sent by all clients", "bytes", min=0), score),
    ]


def _score_chart(comparison: Comparison, over: str, x: dict[str, Any], y: dict[str, Any]) -> Chart:
    metric, kind = comparison.metric, _score_format(comparison)
    said = "steps" if over == "steps" else "bytes sent"
    rows = [
        [setting.label, step, sent, *scores]
        for setting in comparison.settings
        for step, sent, *scores in zip(
            setting.curve.steps,
            setting.curve.uplink_bytes,
            setting.curve.mean,
            setting.curve.low,
            setting.curve.high,
            strict=True,
        )
    ]
    at = {"x": 1 if over == "steps" else 2, "y": 3, "low": 4, "high": 5}
    return Chart(
        id=f"{metric}-over-{'steps' if over == 'steps' else 'bytes'}",
        title=f"{metric.capitalize()} over {said}",
        columns=["setting", "step", "bytes sent", metric, "lowest seed", "highest seed"],
        formats=["text", "number", "bytes", kind, kind, kind],
        rows=rows,
        drawing={
            "kind": "lines",
            "height": HEIGHT,
            "at": at,
            "tip": [2 if over == "steps" else 1, 3, 4, 5],
            "range": "band",
            "x": x,
            "y": y,
            "series": series_list(comparison),
        },
        figure=score_figure(comparison, over),
    )


def frontier_chart(comparison: Comparison) -> Chart | None:
    """Score over all bytes of a run, with a line through FedAvg; None with fewer than two settings to compare."""
    found = places(comparison)
    if len(found) < 2:
        return None
    line, metric, kind = fedavg_line(found, comparison), comparison.metric, _score_format(comparison)
    return Chart(
        id="frontier",
        title=f"{metric.capitalize()} over all bytes of the run",
        columns=["setting", "bytes up and down", metric, "standard deviation", "mean − deviation", "mean + deviation"],
        formats=["text", "bytes", kind, kind, kind, kind],
        rows=[_frontier_row(place) for place in found],
        drawing={
            "kind": "lines",
            "height": 360,
            "at": {"x": 1, "y": 2, "low": 4, "high": 5},
            "tip": [2, 3],
            "range": "bars",
            "x": log_axis("bytes of all clients, up and down", "bytes", *_byte_ends(found), decades()),
            "y": _score_axis(comparison, *_reach(found)),
            "series": [_marker(place, comparison) for place in found],
            "through": [place.label for place in line],
        },
        figure=frontier_figure(found, line, comparison),
    )


def _marker(place: Place, comparison: Comparison) -> dict[str, Any]:
    marker = "diamond" if place.adapts else "circle"
    return {**series_list(comparison, line=False)[place.index], "symbol": marker}


def _frontier_row(place: Place) -> list[Any]:
    spread = place.deviation
    ends = [None, None] if spread is None else [place.mean - spread, place.mean + spread]
    return [place.label, place.total_bytes, place.mean, spread, *ends]


def _reach(found: Sequence[Place]) -> tuple[float, float]:
    low = min(place.mean - (place.deviation or 0.0) for place in found)
    high = max(place.mean + (place.deviation or 0.0) for place in found)
    return low, high if high > low else low + 0.01


def _byte_ends(found: Sequence[Place]) -> tuple[float, float]:
    """A little room beside the first and the last setting."""
    totals = [place.total_bytes for place in found]
    return min(totals) / 1.25, max(totals) * 1.25


@styled
def frontier_figure(found: Sequence[Place], line: Sequence[Place], comparison: Comparison) -> Figure:
    """The still picture: points with error bars, and the line through FedAvg."""
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot([place.total_bytes for place in line], [place.mean for place in line], color=MUTED, linewidth=1.5)
    for place in found:
        marker = "D" if place.adapts else "o"
        axes.errorbar(
            place.total_bytes,
            place.mean,
            place.deviation,
            fmt=marker,
            color=colour(place.index),
            markersize=8,
            capsize=4,
        )
    _label_frontier(axes, found, comparison)
    return figure


def _label_frontier(axes: Axes, found: Sequence[Place], comparison: Comparison) -> None:
    axes.set_xscale("log")
    axes.set_xlim(*_byte_ends(found))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: human_bytes(count)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("bytes of all clients, up and down")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    if comparison.metric == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def _score_format(comparison: Comparison) -> str:
    return "percent" if comparison.metric == "accuracy" else "number"


def _score_axis(comparison: Comparison, low: float, high: float) -> dict[str, Any]:
    """No accuracy is above 100 %, whatever room the axis would like."""
    most = 1.0 if comparison.metric == "accuracy" else math.inf
    return round_axis("", _score_format(comparison), low, high, most)
