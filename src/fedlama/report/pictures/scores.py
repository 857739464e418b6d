"""Learning curves: accuracy or loss over steps and over bytes sent.

Figures are made with matplotlib's objects, not with pyplot: no display, no global state, nothing to close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
MAX_POINTS = 400  # of a curve that is drawn; a training loss has one per round
MAX_END_LABELS = 8
LABEL_LINE = 0.07  # height of a label in parts of a score panel


@dataclass(frozen=True)
class Measure:
    """What a curve is of."""

    name: str  # "accuracy", "test loss", …
    curve: Callable[[Setting], Curve]

    @property
    def is_share(self) -> bool:
        """Whether it is read as a percentage."""
        return self.name == "accuracy"

    @property
    def number_format(self) -> str:
        """How its numbers are read, as in `Chart.formats`."""
        if self.is_share:
            return "percent"
        return "number"

    def axis(self, low: float, high: float) -> dict[str, Any]:
        """A vertical axis. No accuracy is above 100 %, whatever room the axis would like."""
        largest = 1.0 if self.is_share else math.inf
        return round_axis("", self.number_format, low, high, largest)


def score(comparison: Comparison) -> Measure:
    """What the settings are compared by."""
    return Measure(comparison.metric, lambda setting: setting.curve)


TEST_LOSS = Measure("test loss", lambda setting: setting.test_loss)
TRAINING_LOSS = Measure("training loss", lambda setting: _thinned(setting.training_loss))


def score_charts(comparison: Comparison) -> list[Chart]:
    """The learning curves over steps and over bytes, and the losses; none before the first evaluation."""
    own = score(comparison)
    charts = [
        _chart(comparison, own, "steps"),
        _chart(comparison, own, "bytes"),
    ]
    if comparison.metric == "accuracy":
        charts.append(_chart(comparison, TEST_LOSS, "steps"))
    charts.append(_chart(comparison, TRAINING_LOSS, "steps"))

    if charts[0] is None:
        return []
    return [chart for chart in charts if chart is not None]


def _chart(comparison: Comparison, measure: Measure, over: Over) -> Chart | None:
    late = value_range(comparison, measure, late=True)
    full = value_range(comparison, measure, late=False)
    if late is None or full is None:
        return None

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

    kind = measure.number_format
    return Chart(
        id=f"{measure.name.replace(' ', '-')}-over-{over}",
        title=_title(measure, over),
        columns=["setting", "step", "bytes sent", measure.name, "lowest seed", "highest seed"],
        formats=["text", "number", "bytes", kind, kind, kind],
        rows=_curve_rows(comparison, measure),
        drawing={
            "kind": "lines",
            "height": HEIGHT,
            "at": {"x": x_column, "y": 3, "low": 4, "high": 5},
            "tip": [other_column, 3, 4, 5],
            "range": "band",
            "x": across,
            "y": measure.axis(*late),
            "full": measure.axis(*full),
            "series": series_list(comparison),
        },
        figure=score_figure(comparison, measure, over),
    )


def _title(measure: Measure, over: Over) -> str:
    what = "steps" if over == "steps" else "bytes sent"
    return f"{measure.name.capitalize()} over {what}"


def _curve_rows(comparison: Comparison, measure: Measure) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for setting in comparison.settings:
        curve = measure.curve(setting)
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


def _thinned(curve: Curve) -> Curve:
    """Evenly chosen points of a long curve, the last among them: a page should not grow with the rounds of a run."""
    stride = math.ceil(len(curve.steps) / MAX_POINTS)
    if stride <= 1:
        return curve

    start = (len(curve.steps) - 1) % stride
    chosen = slice(start, None, stride)
    return Curve(
        steps=curve.steps[chosen],
        uplink_bytes=curve.uplink_bytes[chosen],
        mean=curve.mean[chosen],
        low=curve.low[chosen],
        high=curve.high[chosen],
    )


def value_range(comparison: Comparison, measure: Measure, *, late: bool) -> tuple[float, float] | None:
    """The smallest and the largest value of all curves; None where there is nothing.

    Arguments:
        comparison: the settings.
        measure: what the curves are of.
        late: only of the curves' second half, where settings differ by little; the first rise may leave the picture.
    """
    lows: list[float] = []
    highs: list[float] = []
    for setting in comparison.settings:
        curve = measure.curve(setting)
        for place, step in enumerate(curve.steps):
            if late and 2 * step < curve.steps[-1]:
                continue
            lows.append(curve.low[place])
            highs.append(curve.high[place])
    if not lows:
        return None
    return min(lows), max(highs)


@styled
def score_figure(comparison: Comparison, measure: Measure, over: Over) -> Figure:
    """One of the score panels by itself.

    Arguments:
        comparison: the settings.
        measure: what the curves are of.
        over: what goes from left to right.
    """
    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.subplots()
    draw_score(axes, comparison, measure, over)
    axes.set_title("", loc="left")  # the page has it
    return figure


def draw_score(axes: Axes, comparison: Comparison, measure: Measure, over: Over) -> None:
    """A score over steps or bytes: the mean as a line, the range over seeds behind it.

    Arguments:
        axes: where it is drawn.
        comparison: the settings.
        measure: what the curves are of.
        over: what goes from left to right.
    """
    unit, size = byte_unit(comparison)
    for index, setting in enumerate(comparison.settings):
        curve = measure.curve(setting)
        if not curve.steps:
            continue
        if over == "steps":
            places = [float(step) for step in curve.steps]
        else:
            places = [sent / size for sent in curve.uplink_bytes]
        _draw_curve(axes, places, curve, index, finished=setting.finished)

    titled(axes, _title(measure, over))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    if over == "steps":
        axes.set_xlabel("steps of every client")
    else:
        axes.set_xlabel(f"uplink of all clients, {unit}")

    _scale_score(axes, comparison, measure)
    if over == "steps":
        _label_ends(axes, comparison, measure)


def _draw_curve(axes: Axes, places: Sequence[float], curve: Curve, index: int, *, finished: bool) -> None:
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
    face = own if finished else "none"
    axes.plot(
        places[-1:],
        curve.mean[-1:],
        "o",
        color=own,
        markerfacecolor=face,
        markersize=6,
        clip_on=False,
    )


def _scale_score(axes: Axes, comparison: Comparison, measure: Measure) -> None:
    found = value_range(comparison, measure, late=True)
    if found is None:
        say_nothing(axes, "nothing evaluated yet")
        return

    low, high = found
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if measure.is_share:
        show_percentages(axes)


def _label_ends(axes: Axes, comparison: Comparison, measure: Measure) -> None:
    """What each curve ends at, in its colour, in a column where no two labels share a line."""
    ends: list[tuple[float, int]] = []
    for index, setting in enumerate(comparison.settings):
        curve = measure.curve(setting)
        if curve.steps:
            ends.append((curve.mean[-1], index))

    low, high = axes.get_ylim()
    height = -1.0
    for value, index in sorted(ends)[-MAX_END_LABELS:]:
        # As high as the curve's end, but above the label before.
        own_height = (value - low) / (high - low)
        height = max(own_height, height + LABEL_LINE)
        text = f"{value:.3f}"
        if measure.is_share:
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


def byte_unit(comparison: Comparison) -> tuple[str, float]:
    """The unit in which the longest curve has a readable length, and its size in bytes."""
    largest = 0.0
    for setting in comparison.settings:
        largest = max([largest, *setting.curve.uplink_bytes])
    for unit, size in BYTE_UNITS:
        if largest >= size:
            return unit, size
    return "B", 1.0
