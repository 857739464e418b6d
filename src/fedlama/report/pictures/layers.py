"""The layers: how often each was averaged, and what it sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.layers import LayerRow, drawn_rows, kernel_names, layer_rows
from fedlama.report.pictures.charts import Chart, axis, series_list
from fedlama.report.pictures.layer_marks import (
    Counted,
    draw_bars,
    draw_dots,
    write_shares,
)
from fedlama.report.pictures.style import (
    GRID,
    say_nothing,
    shortened,
    styled,
    titled,
)
from fedlama.report.words.formats import human_bytes

MANY_LAYERS = 20  # of so many, a reader may want to see the kernels only
MAX_BARS = 48  # more bars than this are drawn as dots


def layer_chart(
    comparison: RunComparison, of: Counted, *, kernels_only: bool = False
) -> Chart | None:
    """A bar per layer and setting; None where no run has the numbers.

    Arguments:
        comparison: the settings.
        of: what the bars count.
        kernels_only: whether layers that are never lengthened are left out, as in the paper's figures.
    """
    shown = drawn_rows(comparison, kernels_only=kernels_only)
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

    part = _part_shown(shown, comparison)
    if part:
        title += f" ({part})"

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
            "height": _height_in_pixels(shown, comparison),
            "at": {"x": 4, "y": 1},
            "tip": [4, 3, *range(5, 5 + len(more))],
            "many": many_bars(shown, comparison),
            "x": axis(counted, kind, min=0),
            "y": axis("", scale="category", categories=[row.name for row in shown]),
            "series": series_list(comparison),
            "kernels": _kernels(shown, comparison),
        },
        figure=layers_figure(shown, comparison, of),
    )


def _part_shown(shown: Sequence[LayerRow], comparison: RunComparison) -> str:
    """Which of the layers are drawn; empty where all are."""
    everything = len(layer_rows(comparison))
    if len(shown) == everything:
        return ""
    kernels = kernel_names(comparison)
    if [row.name for row in shown] == kernels:
        return f"the {len(shown)} kernels of {everything} layers"
    return f"the {len(shown)} largest of {everything} layers"


def _kernels(shown: Sequence[LayerRow], comparison: RunComparison) -> list[str]:
    """What a reader may reduce a chart of many layers to; empty where that changes nothing."""
    if len(shown) < MANY_LAYERS:
        return []
    kernels = set(kernel_names(comparison))
    kept: list[str] = []
    for row in shown:
        if row.name in kernels:
            kept.append(row.name)
    if len(kept) == len(shown):
        return []
    return kept


def _chart_rows(
    shown: Sequence[LayerRow], comparison: RunComparison, of: Counted
) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for index, setting in enumerate(comparison.settings):
        for row in shown:
            value = row.value(index, of)
            if value is None:
                continue
            cells = [setting.label, row.name, row.size, row.share, value]
            if of == "uplink_bytes":
                bits = row.value(index, "bits")
                cells.append(bits)
            rows.append(cells)
    return rows


def many_bars(shown: Sequence[LayerRow], comparison: RunComparison) -> bool:
    """Whether bars would be too many to see one by one.

    Arguments:
        shown: the layers.
        comparison: the settings, each with a bar in a layer's line.
    """
    settings = len(comparison.settings)
    return len(shown) * settings > MAX_BARS


def _height_in_pixels(shown: Sequence[LayerRow], comparison: RunComparison) -> int:
    """Every name keeps a line of its own."""
    line = 15
    if not many_bars(shown, comparison):
        # Each setting has a bar of its own in a layer's line.
        bars = 9 * len(comparison.settings)
        line = max(22, bars + 8)
    return 70 + line * len(shown)


def height_in_inches(shown: Sequence[LayerRow], comparison: RunComparison) -> float:
    """Every name keeps a line of its own, and few layers fill the height of the two panels beside them.

    Arguments:
        shown: the layers.
        comparison: the settings.
    """
    layers = len(shown)
    if many_bars(shown, comparison):
        return 0.17 * layers

    # Each setting has a bar of its own in a layer's line.
    needed = (0.13 * len(comparison.settings) + 0.1) * layers
    comfortable = min(5.9, 1.7 * needed)
    return max(2.6, needed, comfortable)


@styled
def layers_figure(
    shown: Sequence[LayerRow], comparison: RunComparison, of: Counted
) -> Figure:
    """The layers' panel by itself.

    Arguments:
        shown: the layers.
        comparison: the settings.
        of: what is counted.
    """
    height = 0.8 + height_in_inches(shown, comparison)
    figure = Figure(figsize=(5.0, height), layout="constrained")
    axes = figure.subplots()
    draw_layers(axes, shown, comparison, of)
    # The page has a title, which says which layers these are.
    axes.set_title("", loc="left")
    axes.set_xlabel(_counted_text(comparison, of))
    return figure


def draw_layers(
    axes: Axes,
    rows: Sequence[LayerRow],
    comparison: RunComparison,
    of: Counted = "aggregations",
) -> None:
    """Aggregations (or bytes) of every layer, first layer on top, its share of the model at the right.

    Arguments:
        axes: where it is drawn.
        rows: the layers.
        comparison: the settings.
        of: what is counted.
    """
    if not rows:
        say_nothing(axes, "no round yet")
        return

    many = many_bars(rows, comparison)
    for index in range(len(comparison.settings)):
        if many:
            draw_dots(axes, rows, index, comparison, of)
        else:
            draw_bars(axes, rows, index, comparison, of)

    titled(axes, "Aggregations per layer")
    _name_layers(axes, rows, many)
    _scale_counts(axes, of)
    counted = _counted_text(comparison, of)
    part = _part_shown(rows, comparison)
    if part:
        counted += f"\n{part}"
    axes.set_xlabel(counted)
    lines = "x"
    if many:
        # Dots are far from their names
        lines = "both"
    axes.grid(axis=lines, color=GRID, linewidth=0.8)
    axes.spines["bottom"].set_visible(False)
    write_shares(axes, rows)


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


def _counted_text(comparison: RunComparison, of: Counted) -> str:
    """The axis, and that its numbers may be no whole ones."""
    text = "times averaged over the run"
    if of == "uplink_bytes":
        text = "bytes sent by all clients"
    if any(len(setting.runs) > 1 for setting in comparison.settings):
        # In a line of its own, or it would run into the column of shares.
        text += "\nmean over seeds"
    return text
