"""Learning curves: accuracy or loss over steps and over bytes sent.

Figures are made with matplotlib's objects, not with pyplot: no display, no global state, nothing to close.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.outcomes import LOSS
from fedlama.report.numbers.seeds import Curve
from fedlama.report.pictures.byte_axis import byte_unit, logarithmic_range
from fedlama.report.pictures.charts import Chart, axis, decades, log_axis, series_list
from fedlama.report.pictures.measures import (
    TEST_LOSS,
    TRAINING_LOSS,
    CurveMeasure,
    score,
    value_range,
)
from fedlama.report.pictures.style import (
    GRID,
    colour,
    dashes,
    say_nothing,
    show_percentages,
    styled,
    titled,
)
from fedlama.report.words.formats import human_bytes, upper_first

Over = Literal["steps", "bytes"]

HEIGHT = 340
MAX_END_LABELS = 8
# Of the whole range of values: if those of the second half span less, they fill the picture
MIN_LATE_PART = 0.25
LABEL_LINE = 0.07  # height of a label in parts of a score panel


def score_charts(comparison: RunComparison) -> list[Chart]:
    """The learning curves over steps and over bytes, and the losses; none before the first evaluation."""
    own = score(comparison)
    charts = [
        _chart(comparison, own, "steps"),
        _chart(comparison, own, "bytes"),
    ]
    if comparison.metric != LOSS:
        charts.append(_chart(comparison, TEST_LOSS, "steps"))
    charts.append(_chart(comparison, TRAINING_LOSS, "steps"))

    if charts[0] is None:
        return []
    return [chart for chart in charts if chart is not None]


def _chart(
    comparison: RunComparison, measure: CurveMeasure, over: Over
) -> Chart | None:
    late = value_range(comparison, measure, late=True)
    full = value_range(comparison, measure, late=False)
    if late is None or full is None:
        return None

    # The columns are the same for both; what is x in one is in the tooltip of the other.
    step_column = 1
    bytes_column = 2
    if over == "steps":
        across = axis("steps of every client", min=0)
        x_column = step_column
        other_column = bytes_column
    else:
        across = axis("bytes sent by all clients", "bytes", min=0)
        logarithmic = logarithmic_range(comparison)
        if logarithmic is not None:
            across = log_axis(
                "bytes sent by all clients", "bytes", *logarithmic, decades()
            )
        x_column = bytes_column
        other_column = step_column

    kind = measure.number_format
    return Chart(
        id=f"{measure.slug}-over-{over}",
        title=_title(measure, over),
        columns=[
            "setting",
            "step",
            "bytes sent",
            measure.name,
            "lowest seed",
            "highest seed",
        ],
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


def _title(measure: CurveMeasure, over: Over) -> str:
    what = "bytes sent"
    if over == "steps":
        what = "steps"
    return f"{upper_first(measure.name)} over {what}"


def _curve_rows(comparison: RunComparison, measure: CurveMeasure) -> list[list[Any]]:
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


@styled
def score_figure(
    comparison: RunComparison,
    measure: CurveMeasure,
    over: Over,
    *,
    whole: bool = False,
) -> Figure:
    """One of the score panels by itself.

    Arguments:
        comparison: the settings.
        measure: what the curves are of.
        over: what goes from left to right.
        whole: whether curves are drawn from their first point on, even if that presses their ends together.
    """
    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.subplots()
    draw_score(axes, comparison, measure, over, whole=whole)
    axes.set_title("", loc="left")  # the page has it
    return figure


def draw_score(
    axes: Axes,
    comparison: RunComparison,
    measure: CurveMeasure,
    over: Over,
    *,
    whole: bool = False,
) -> None:
    """A score over steps or bytes: the mean as a line, the range over seeds behind it.

    Arguments:
        axes: where it is drawn.
        comparison: the settings.
        measure: what the curves are of.
        over: what goes from left to right.
        whole: whether the first rise is drawn in any case.
    """
    unit, size = byte_unit(comparison)
    logarithmic = logarithmic_range(comparison)
    for setting in comparison.settings:
        curve = measure.curve(setting)
        if not curve.steps:
            continue
        if over == "steps":
            places = [float(step) for step in curve.steps]
        elif logarithmic is not None:
            places = list(curve.uplink_bytes)
        else:
            places = [sent / size for sent in curve.uplink_bytes]
        _draw_curve(axes, places, curve, setting.look, finished=setting.finished)

    titled(axes, _title(measure, over))
    axes.margins(x=0.01)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    if over == "steps":
        axes.set_xlim(left=0)
        axes.set_xlabel(_what_is_drawn(comparison))
    elif logarithmic is not None:
        axes.set_xscale("log")
        axes.set_xlim(*logarithmic)
        axes.xaxis.set_major_locator(LogLocator())
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda count, _: human_bytes(count))
        )
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("uplink of all clients")
    else:
        axes.set_xlim(left=0)
        axes.set_xlabel(f"uplink of all clients, {unit}")

    _scale_score(axes, comparison, measure, whole=whole)
    if over == "steps":
        _label_ends(axes, comparison, measure)


def _what_is_drawn(comparison: RunComparison) -> str:
    """The axis, and what there is beside curves."""
    text = "steps of every client"
    if any(len(setting.runs) > 1 for setting in comparison.settings):
        text += "\nbands: from the lowest seed to the highest"
    return text


def _draw_curve(
    axes: Axes, places: Sequence[float], curve: Curve, look: int, *, finished: bool
) -> None:
    own = colour(look)
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
        linestyle=dashes(look),
        linewidth=1.8,
    )

    # A filled dot is where a setting ended, a hollow one where it stands.
    face = "none"
    if finished:
        face = own
    axes.plot(
        places[-1:],
        curve.mean[-1:],
        "o",
        color=own,
        markerfacecolor=face,
        markersize=6,
        clip_on=False,
    )


def _scale_score(
    axes: Axes, comparison: RunComparison, measure: CurveMeasure, *, whole: bool
) -> None:
    late = value_range(comparison, measure, late=True)
    full = value_range(comparison, measure, late=False)
    if late is None or full is None:
        say_nothing(axes, "nothing evaluated yet")
        return

    # The beginning leaves the picture only where the rest could not be told apart beside it.
    low, high = late
    lowest, highest = full
    if whole or high - low >= MIN_LATE_PART * (highest - lowest):
        low, high = full
    # A flat curve gets some room, too.
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if measure.is_share:
        show_percentages(axes)


def _label_ends(axes: Axes, comparison: RunComparison, measure: CurveMeasure) -> None:
    """What each curve ends at, in its colour, in a column where no two labels share a line."""
    ends: list[tuple[float, int]] = []
    for setting in comparison.settings:
        curve = measure.curve(setting)
        if curve.steps:
            ends.append((curve.mean[-1], setting.look))

    low, high = axes.get_ylim()
    height = -1.0
    for value, look in sorted(ends)[-MAX_END_LABELS:]:
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
            color=colour(look),
            fontweight="bold",
        )
