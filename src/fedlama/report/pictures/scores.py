"""Learning curves: the score over steps and over bytes sent.

Figures are made with matplotlib's objects, not with pyplot: no display, no global state, nothing to close.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlama.report.numbers.comparison import Comparison, Curve, Setting
from fedlama.report.pictures.charts import Chart, axis, round_axis, series_list
from fedlama.report.pictures.style import GRID, colour, dashes, say_nothing, show_percentages, styled, titled
from fedlama.report.words.formats import BYTE_UNITS

Over = Literal["steps", "bytes"]

HEIGHT = 340
MAX_END_LABELS = 8
LABEL_LINE = 0.07  # height of a label in parts of a score panel


def score_charts(comparison: Comparison) -> list[Chart]:
    """The learning curves over steps and over bytes; none before the first evaluation."""
    found = late_range(comparison)
    if found is None:
        return []
    return [
        _score_chart(comparison, "steps", found),
        _score_chart(comparison, "bytes", found),
    ]


def _score_chart(comparison: Comparison, over: Over, late: tuple[float, float]) -> Chart:
    metric = comparison.metric
    kind = score_format(comparison)

    # The columns are the same for both; what is x in one is told by the tooltip of the other.
    step_column = 1
    bytes_column = 2
    if over == "steps":
        across = axis("steps of every client", min=0)
        x_column = step_column
        other_column = bytes_column
    else:
        across = axis("bytes sent by all clients", "bytes", min=0)
        x_column = bytes_column
        other_column = step_column

    return Chart(
        id=f"{metric}-over-{over}",
        title=_title(comparison, over),
        columns=["setting", "step", "bytes sent", metric, "lowest seed", "highest seed"],
        formats=["text", "number", "bytes", kind, kind, kind],
        rows=_curve_rows(comparison),
        drawing={
            "kind": "lines",
            "height": HEIGHT,
            "at": {"x": x_column, "y": 3, "low": 4, "high": 5},
            "tip": [other_column, 3, 4, 5],
            "range": "band",
            "x": across,
            "y": score_axis(comparison, *late),
            "series": series_list(comparison),
        },
        figure=score_figure(comparison, over),
    )


def _title(comparison: Comparison, over: Over) -> str:
    what = "steps" if over == "steps" else "bytes sent"
    return f"{comparison.metric.capitalize()} over {what}"


def _curve_rows(comparison: Comparison) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for setting in comparison.settings:
        curve = setting.curve
        for place, step in enumerate(curve.steps):
            row = [
                setting.label,
                step,
                curve.uplink_bytes[place],
                curve.mean[place],
                curve.low[place],
                curve.high[place],
            ]
            rows.append(row)
    return rows


def score_format(comparison: Comparison) -> str:
    """How a score is read, as in `Chart.formats`."""
    if comparison.metric == "accuracy":
        return "percent"
    return "number"


def score_axis(comparison: Comparison, low: float, high: float) -> dict[str, Any]:
    """No accuracy is above 100 %, whatever room the axis would like."""
    largest = math.inf
    if comparison.metric == "accuracy":
        largest = 1.0
    return round_axis("", score_format(comparison), low, high, largest)


def late_range(comparison: Comparison) -> tuple[float, float] | None:
    """The range of the curves' second half, where settings differ by little; the first rise may leave the picture."""
    lows: list[float] = []
    highs: list[float] = []
    for setting in comparison.settings:
        curve = setting.curve
        for place, step in enumerate(curve.steps):
            if 2 * step >= curve.steps[-1]:
                lows.append(curve.low[place])
                highs.append(curve.high[place])
    if not lows:
        return None
    return min(lows), max(highs)


@styled
def score_figure(comparison: Comparison, over: Over) -> Figure:
    """One of the two score panels by itself.

    Arguments:
        comparison: the settings.
        over: what goes from left to right.
    """
    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.subplots()
    draw_score(axes, comparison, over)
    axes.set_title("", loc="left")  # the page has it
    return figure


def draw_score(axes: Axes, comparison: Comparison, over: Over) -> None:
    """The score over steps or bytes: the mean as a line, the range over seeds behind it.

    Arguments:
        axes: where it is drawn.
        comparison: the settings.
        over: what goes from left to right.
    """
    unit, size = byte_unit(comparison)
    for index, setting in enumerate(comparison.settings):
        curve = setting.curve
        if not curve.steps:
            continue
        if over == "steps":
            places = [float(step) for step in curve.steps]
        else:
            places = [sent / size for sent in curve.uplink_bytes]
        _draw_curve(axes, places, setting, index)

    titled(axes, _title(comparison, over))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    if over == "steps":
        axes.set_xlabel("steps of every client")
    else:
        axes.set_xlabel(f"uplink of all clients, {unit}")

    _scale_score(axes, comparison)
    if over == "steps":
        _label_ends(axes, comparison)


def _draw_curve(axes: Axes, places: Sequence[float], setting: Setting, index: int) -> None:
    curve = setting.curve
    own = colour(index)
    axes.fill_between(
        places,
        curve.low,
        curve.high,
        color=own,
        alpha=0.16,
        linewidth=0,
    )
    axes.plot(
        places,
        curve.mean,
        color=own,
        linestyle=dashes(index),
        linewidth=1.8,
    )

    # A filled dot is where a setting ended, a hollow one where it stands.
    face = own if setting.finished else "none"
    axes.plot(
        places[-1:],
        curve.mean[-1:],
        "o",
        color=own,
        markerfacecolor=face,
        markersize=6,
        clip_on=False,
    )


def _scale_score(axes: Axes, comparison: Comparison) -> None:
    found = late_range(comparison)
    if found is None:
        say_nothing(axes, "nothing evaluated yet")
        return

    low, high = found
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if comparison.metric == "accuracy":
        show_percentages(axes)


def _label_ends(axes: Axes, comparison: Comparison) -> None:
    """What each curve ends at, in its colour, in a column where no two labels share a line."""
    ends: list[tuple[float, int]] = []
    for index, setting in enumerate(comparison.settings):
        if setting.curve.steps:
            ends.append((_end(setting.curve), index))

    low, high = axes.get_ylim()
    height = -1.0
    for value, index in sorted(ends)[-MAX_END_LABELS:]:
        # As high as the curve's end, but above the label before.
        own_height = (value - low) / (high - low)
        height = max(own_height, height + LABEL_LINE)
        text = f"{value:.3f}"
        if comparison.metric == "accuracy":
            text = f"{100 * value:.1f} %"
        axes.text(
            1.03,
            height,
            text,
            transform=axes.transAxes,
            va="center",
            color=colour(index),
            fontweight="bold",
        )


def _end(curve: Curve) -> float:
    return curve.mean[-1]


def byte_unit(comparison: Comparison) -> tuple[str, float]:
    """The unit in which the longest curve has a readable length, and its size in bytes."""
    largest = 0.0
    for setting in comparison.settings:
        largest = max([largest, *setting.curve.uplink_bytes])
    for unit, size in BYTE_UNITS:
        if largest >= size:
            return unit, size
    return "B", 1.0
