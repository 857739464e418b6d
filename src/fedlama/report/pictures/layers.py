"""The layers: how often each was averaged, and what it sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedlama.report.numbers.comparison import Comparison
from fedlama.report.numbers.layers import LayerRow, drawn_rows, kernel_names, layer_rows
from fedlama.report.pictures.charts import Chart, axis, series_list
from fedlama.report.pictures.style import (
    GRID,
    INK,
    MUTED,
    colour,
    say_nothing,
    shortened,
    styled,
    titled,
)
from fedlama.report.words.formats import count_text, human_bytes

Counted = Literal["aggregations", "uplink_bytes"]

MANY_LAYERS = 20  # of so many, a reader may want to see the kernels only
MAX_BARS = 48  # more bars than this are drawn as dots
SMALL_SHARE = 0.0005
SHARE_COLUMN = 62  # points right of the axes


def layer_chart(comparison: Comparison, of: Counted) -> Chart | None:
    """A bar per layer and setting; None where no run has the numbers.

    Arguments:
        comparison: the settings.
        of: what the bars count.
    """
    shown = drawn_rows(comparison)
    rows = _chart_rows(shown, comparison, of)
    if not rows:
        return None

    if of == "aggregations":
        name = "aggregations-by-layer"
        title = "Aggregations of each layer"
        counted = "times averaged"
        kind = "number"
        more: list[str] = []
    else:
        name = "bytes-by-layer"
        title = "Bytes sent for each layer, as coded"
        counted = "bytes sent by all clients"
        kind = "bytes"
        more = ["bits per number"]

    everything = len(layer_rows(comparison))
    if len(shown) < everything:
        title += f" (the {len(shown)} largest of {everything} layers)"

    return Chart(
        id=name,
        title=title,
        columns=[
            "setting",
            "layer",
            "parameters",
            "share of the model",
            counted,
            *more,
        ],
        formats=["text", "text", "number", "percent", kind, *["number"] * len(more)],
        rows=rows,
        drawing={
            "kind": "bars",
            "height": _height_in_pixels(comparison),
            "at": {"x": 4, "y": 1},
            "tip": [4, 3, *range(5, 5 + len(more))],
            "many": many_bars(comparison),
            "x": axis(counted, kind, min=0),
            "y": axis("", scale="category", categories=[row.name for row in shown]),
            "series": series_list(comparison),
            "kernels": _kernels(shown, comparison),
        },
        figure=layers_figure(comparison, of),
    )


def _kernels(shown: Sequence[LayerRow], comparison: Comparison) -> list[str]:
    """What a reader may reduce a chart of many layers to; empty where that changes nothing."""
    names = [row.name for row in shown]
    kernels = set(kernel_names(comparison))
    kept = [name for name in names if name in kernels]
    if len(names) < MANY_LAYERS or len(kept) == len(names):
        return []
    return kept


def _chart_rows(
    shown: Sequence[LayerRow], comparison: Comparison, of: Counted
) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for index, setting in enumerate(comparison.settings):
        for row in shown:
            value = row.value(index, of)
            if value is not None:
                cells = [setting.label, row.name, row.size, row.share, value]
                if of == "uplink_bytes":
                    cells.append(row.value(index, "bits"))
                rows.append(cells)
    return rows


def many_bars(comparison: Comparison) -> bool:
    """Whether bars would be too many to see one by one."""
    bars = len(drawn_rows(comparison)) * len(comparison.settings)
    return bars > MAX_BARS


def _height_in_pixels(comparison: Comparison) -> int:
    """Every name keeps a line of its own."""
    line = 15
    if not many_bars(comparison):
        line = max(22, 9 * len(comparison.settings) + 8)
    return 70 + line * len(drawn_rows(comparison))


def height_in_inches(comparison: Comparison) -> float:
    """Every name keeps a line of its own, and few layers fill the height of the two panels beside them."""
    layers = len(drawn_rows(comparison))
    if many_bars(comparison):
        return 0.17 * layers

    # Each setting has a bar of its own in a layer's line.
    needed = (0.13 * len(comparison.settings) + 0.1) * layers
    comfortable = min(5.9, 1.7 * needed)
    return max(2.6, needed, comfortable)


@styled
def layers_figure(comparison: Comparison, of: Counted = "aggregations") -> Figure:
    """The layers' panel by itself.

    Arguments:
        comparison: the settings.
        of: what is counted.
    """
    height = 0.8 + height_in_inches(comparison)
    figure = Figure(figsize=(5.0, height), layout="constrained")
    axes = figure.subplots()
    draw_layers(axes, comparison, of)
    axes.set_title("", loc="left")  # the page has it
    return figure


def draw_layers(
    axes: Axes, comparison: Comparison, of: Counted = "aggregations"
) -> None:
    """Aggregations (or bytes) of every layer, first layer on top, its share of the model at the right.

    Arguments:
        axes: where it is drawn.
        comparison: the settings.
        of: what is counted.
    """
    rows = drawn_rows(comparison)
    if not rows:
        say_nothing(axes, "no round yet")
        return

    many = many_bars(comparison)
    for index in range(len(comparison.settings)):
        if many:
            _draw_dots(axes, rows, index, comparison, of)
        else:
            _draw_bars(axes, rows, index, comparison, of)

    titled(axes, "Aggregations per layer")
    _name_layers(axes, rows, many)
    _scale_counts(axes, of)
    axes.set_xlabel(_counted_text(rows, comparison, of))
    axes.grid(axis="both" if many else "x", color=GRID, linewidth=0.8)
    axes.spines["bottom"].set_visible(False)
    _write_shares(axes, rows)


def _name_layers(axes: Axes, rows: Sequence[LayerRow], many: bool) -> None:
    names = [shortened(row.name) for row in rows]
    size = 10
    if many:
        size = 8
    count = len(rows)
    axes.set_yticks(range(count), names, fontsize=size)
    # The first layer is on top.
    axes.set_ylim(count - 0.4, -0.6)


def _scale_counts(axes: Axes, of: Counted) -> None:
    axes.set_xlim(left=0)

    ticks = 6
    if of == "uplink_bytes":
        # Their labels are longer.
        ticks = 4
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda count, _: human_bytes(count))
        )
    locator = MaxNLocator(ticks, integer=True, steps=[1, 2, 5, 10])
    axes.xaxis.set_major_locator(locator)


def _counted_text(rows: Sequence[LayerRow], comparison: Comparison, of: Counted) -> str:
    text = "times averaged over the run"
    if of == "uplink_bytes":
        text = "bytes sent by all clients"

    everything = len(layer_rows(comparison))
    if len(rows) < everything:
        text += f"\nthe {len(rows)} largest of {everything} layers"
    return text


def _draw_bars(
    axes: Axes,
    rows: Sequence[LayerRow],
    index: int,
    comparison: Comparison,
    of: Counted,
) -> None:
    # The bars of all settings share four fifths of a layer's line.
    height = 0.8 / len(comparison.settings)
    places = [place - 0.4 + (index + 0.5) * height for place in range(len(rows))]
    counts = [row.value(index, of) or 0.0 for row in rows]

    finished = comparison.settings[index].finished
    bars = axes.barh(
        places,
        counts,
        height=0.86 * height,
        color=colour(index),
        alpha=1.0 if finished else 0.5,
    )
    write = human_bytes
    if of == "aggregations":
        write = count_text
    texts = [write(count) for count in counts]
    axes.bar_label(bars, texts, padding=3, fontsize=8, color=MUTED)


def _draw_dots(
    axes: Axes,
    rows: Sequence[LayerRow],
    index: int,
    comparison: Comparison,
    of: Counted,
) -> None:
    """A dot per layer and setting, its area growing with the layer's share; side by side, as they would hide others."""
    shift = 0.5 * ((index + 0.5) / len(comparison.settings) - 0.5)
    places: list[float] = []
    counts: list[float] = []
    areas: list[float] = []
    for place, row in enumerate(rows):
        count = row.value(index, of)
        if count is None:
            continue
        places.append(place + shift)
        counts.append(count)
        areas.append(12 + 300 * (row.share or 0.0))

    own = colour(index)
    finished = comparison.settings[index].finished
    axes.scatter(
        counts,
        places,
        areas,
        facecolor=own if finished else "none",
        edgecolor=own,
        linewidth=0.8,
        zorder=3,
        clip_on=False,
    )


def _write_shares(axes: Axes, rows: Sequence[LayerRow]) -> None:
    """A column of its own, right of the axes: what a layer weighs says how much its aggregations matter."""
    if not any(row.share for row in rows):
        return

    beside_axes = axes.get_yaxis_transform()
    for place, row in enumerate(rows):
        share = row.share or 0.0
        text = f"{100 * share:.1f} %"
        ink = INK
        if share < SMALL_SHARE:
            text = "< 0.1 %"
            ink = MUTED
        axes.annotate(
            text,
            xy=(1, place),
            xytext=(SHARE_COLUMN, 0),
            xycoords=beside_axes,
            textcoords="offset points",
            va="center",
            color=ink,
            ha="right",
            fontsize=8,
        )

    axes.annotate(
        "share of\nthe model",
        xy=(1, 0),
        xytext=(SHARE_COLUMN, -6),
        xycoords="axes fraction",
        textcoords="offset points",
        va="top",
        color=MUTED,
        ha="right",
        fontsize=8,
    )
