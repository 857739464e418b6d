"""Each layer's interval over the cycles of a run: the darker, the longer."""

from __future__ import annotations

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlama.report.numbers.intervals import IntervalMap, Span
from fedlama.report.pictures.charts import Chart, axis
from fedlama.report.pictures.style import INK, colour, colour_number, shortened, styled

FAINTEST = 0.12  # the shade of the shortest interval, as in charts.js
MANY_LAYERS = 24  # of more, the names are smaller

Pixel = tuple[float, ...]  # red, green, blue, opacity


def interval_chart(one: IntervalMap, number: int) -> Chart:
    """A row per layer, cycles from left to right, the darker the longer the interval.

    Arguments:
        one: one run's intervals.
        number: of this chart among those of its kind, from 1.
    """
    rows: list[list[object]] = []
    for span in one.spans:
        rows.append([span.layer, span.first, span.last, span.interval])

    layers = len(one.layers)
    line = 24
    if layers > MANY_LAYERS:
        line = 14
    return Chart(
        id=f"intervals-{number}",
        title=f"Intervals of {one.label} over the cycles",
        columns=["layer", "first cycle", "last cycle", "interval in steps"],
        formats=["text", "number", "number", "number"],
        rows=rows,
        drawing={
            "kind": "tiles",
            "setting": one.label,
            "height": 70 + line * layers,
            "at": {"y": 0, "x": 1, "end": 2, "value": 3},
            "x": axis("cycle", min=0.5, max=one.cycles + 0.5),
            "y": axis("", scale="category", categories=one.layers),
            "low": one.intervals[0],
            "high": one.intervals[-1],
            "colour": colour_number(one.look),
        },
        figure=interval_figure(one),
    )


@styled
def interval_figure(one: IntervalMap) -> Figure:
    """The still picture: a row per layer, a column per cycle."""
    layers = len(one.layers)
    line = 0.24
    font_size = 9
    if layers > MANY_LAYERS:
        line = 0.15
        font_size = 7
    figure = Figure(figsize=(5.0, 0.9 + line * layers), layout="constrained")
    axes = figure.subplots()

    # Cycles are counted from 1, and the first layer is on top.
    extent = (0.5, one.cycles + 0.5, layers - 0.5, -0.5)
    axes.imshow(
        _pixels(one),
        aspect="auto",
        interpolation="nearest",
        extent=extent,
    )
    names = [shortened(name) for name in one.layers]
    axes.set_yticks(range(layers), names, fontsize=font_size, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("cycle")
    return figure


def _pixels(one: IntervalMap) -> list[list[Pixel]]:
    """The setting's colour for every layer and cycle, with the interval as its opacity."""
    nothing: Pixel = (0.0, 0.0, 0.0, 0.0)
    rows: dict[str, list[Pixel]] = {}
    for layer in one.layers:
        rows[layer] = [nothing] * one.cycles

    own = to_rgb(colour(one.look))
    for span in one.spans:
        opacity = _shade(span, one)
        pixel = (*own, opacity)
        row = rows[span.layer]
        for cycle in range(span.first, span.last + 1):
            row[cycle - 1] = pixel
    return list(rows.values())


def _shade(span: Span, one: IntervalMap) -> float:
    """From the faintest for the shortest interval to 1 for the longest."""
    shortest = one.intervals[0]
    longest = one.intervals[-1]
    # Where all intervals are equal, all are the faintest.
    width = (longest - shortest) or 1
    share = (span.interval - shortest) / width
    darker = (1 - FAINTEST) * share
    return FAINTEST + darker
