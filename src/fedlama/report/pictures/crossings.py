"""Figure 1 of the paper for runs of our own: δ and 1 − λ over the layers, by ascending discrepancy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlama.report.numbers.crossings import Crossing
from fedlama.report.pictures.charts import Chart, axis
from fedlama.report.pictures.style import (
    GRID,
    INK,
    MUTED,
    colour,
    colour_number,
    shortened,
    styled,
)

MAX_NAMES = 16  # more layers are numbered
CURVES = "δ and 1 − λ"


def crossing_chart(crossing: Crossing, number: int) -> Chart:
    """δ and 1 − λ over the layers; a filled dot is a layer that is lengthened.

    Arguments:
        crossing: one run's latest decision.
        number: of this chart among those of its kind, from 1.
    """
    # Two layers may have one name, so their places are part of it.
    layers = [f"{place}. {name}" for place, name in enumerate(crossing.names, 1)]
    rows: list[list[object]] = []
    for curve, values in (("δ", crossing.delta), ("1 − λ", crossing.kept)):
        for layer, value, long in zip(layers, values, crossing.lengthened, strict=True):
            rows.append([curve, layer, value, long])

    own = colour_number(crossing.look)
    return Chart(
        id=f"crossing-{number}",
        title=f"δ and 1 − λ of {crossing.label} after step {crossing.step:,}",
        columns=["curve", "layer", "share", "lengthened"],
        formats=["text", "text", "number", "text"],
        rows=rows,
        drawing={
            "kind": "lines",
            "setting": crossing.label,
            "height": 360 if len(layers) <= MAX_NAMES else 300,
            "at": {"x": 1, "y": 2, "filled": 3},
            "tip": [2, 3],
            "dots": True,
            "x": axis(across(crossing.walked), scale="category", categories=layers),
            "y": axis("", min=0, max=1),
            "series": [
                {"name": "δ", "colour": own, "dash": 0, "line": True, "dots": True},
                {
                    "name": "1 − λ",
                    "colour": "muted",
                    "dash": 1,
                    "line": True,
                    "dots": False,
                },
            ],
        },
        figure=crossing_figure(crossing),
    )


@styled
def crossing_figure(crossing: Crossing) -> Figure:
    """The still picture."""
    layers = len(crossing.names)
    height = 3.2
    if layers <= MAX_NAMES:
        height = 3.9
    figure = Figure(figsize=(5.0, height), layout="constrained")
    axes = figure.subplots()

    places = list(range(1, layers + 1))
    axes.plot(places, crossing.kept, color=MUTED, linewidth=1.8)
    axes.plot(places, crossing.delta, color=colour(crossing.look), linewidth=1.8)
    _draw_dots(axes, places, crossing)
    _name_curves(axes, crossing)
    if crossing.last_long is not None:
        axes.axvline(crossing.last_long, color=MUTED, linewidth=1, linestyle=":")

    axes.set_ylim(-0.03, 1.06)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_ylabel(CURVES)
    axes.set_xlabel(axis_text(crossing.walked))
    _name_layers(axes, places, crossing)
    return figure


def across(walked: str) -> str:
    """What goes from left to right.

    Arguments:
        walked: what Algorithm 2 walks, "kernels" or "layers".
    """
    return f"{walked}, by ascending discrepancy"


def axis_text(walked: str) -> str:
    """The same, and what is drawn over it.

    Arguments:
        walked: what Algorithm 2 walks, "kernels" or "layers".
    """
    lines = (
        across(walked),
        "δ: share of the discrepancy so far",
        "1 − λ: share of the parameters still to come",
        "dotted: the last that is averaged less often",
    )
    return "\n".join(lines)


def _draw_dots(axes: Axes, places: Sequence[int], crossing: Crossing) -> None:
    own = colour(crossing.look)
    size = 12
    if len(places) <= MAX_NAMES:
        size = 30
    for long in (True, False):
        across: list[int] = []
        up: list[float] = []
        for place, value, lengthened in zip(
            places, crossing.delta, crossing.lengthened, strict=True
        ):
            if lengthened is long:
                across.append(place)
                up.append(value)
        axes.scatter(
            across,
            up,
            size,
            facecolor=own if long else "none",
            edgecolor=own,
            zorder=3,
            clip_on=False,
        )


def _name_curves(axes: Axes, crossing: Crossing) -> None:
    """Where they end, in place of a legend."""
    last = len(crossing.names)
    curves = [
        ("δ", crossing.delta[-1], colour(crossing.look)),
        ("1 − λ", crossing.kept[-1], MUTED),
    ]
    for name, end, ink in curves:
        axes.annotate(
            name,
            xy=(last, end),
            xytext=(9, -3),
            color=ink,
            textcoords="offset points",
            fontweight="bold",
        )


def _name_layers(axes: Axes, places: Sequence[int], crossing: Crossing) -> None:
    if len(places) > MAX_NAMES:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return

    names = [shortened(name) for name in crossing.names]
    axes.set_xticks(
        places,
        names,
        rotation=38,
        ha="right",
        rotation_mode="anchor",
        fontsize=9,
        color=INK,
    )
