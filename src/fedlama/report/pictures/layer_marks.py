"""What stands in the line of a layer: a bar or a dot per setting, and the layer's share of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.layers import LayerRow
from fedlama.report.pictures.style import INK, MUTED, colour
from fedlama.report.words.formats import count_text, human_bytes

Counted = Literal["aggregations", "uplink_bytes"]

SMALL_SHARE = 0.0005
SHARE_COLUMN = 62  # points right of the axes


def draw_bars(
    axes: Axes,
    rows: Sequence[LayerRow],
    index: int,
    comparison: RunComparison,
    of: Counted,
) -> None:
    """A bar per layer, of one setting; the bars of all settings share four fifths of a layer's line."""
    height = 0.8 / len(comparison.settings)
    middle = (index + 0.5) * height
    places = [place - 0.4 + middle for place in range(len(rows))]
    counts = [row.value(index, of) or 0.0 for row in rows]

    # Pale where a setting has not ended
    opacity = 0.5
    if comparison.settings[index].finished:
        opacity = 1.0
    bars = axes.barh(
        places,
        counts,
        height=0.86 * height,
        color=colour(comparison.settings[index].look),
        alpha=opacity,
    )
    write = human_bytes
    if of == "aggregations":
        write = count_text
    texts = [write(count) for count in counts]
    axes.bar_label(bars, texts, padding=3, fontsize=8, color=MUTED)


def draw_dots(
    axes: Axes,
    rows: Sequence[LayerRow],
    index: int,
    comparison: RunComparison,
    of: Counted,
) -> None:
    """A dot per layer and setting, its area growing with the layer's share; side by side, as they would hide others."""
    side = (index + 0.5) / len(comparison.settings)
    shift = 0.5 * (side - 0.5)
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

    # Hollow where a setting has not ended
    own = colour(comparison.settings[index].look)
    face = "none"
    if comparison.settings[index].finished:
        face = own
    axes.scatter(
        counts,
        places,
        areas,
        facecolor=face,
        edgecolor=own,
        linewidth=0.8,
        zorder=3,
        clip_on=False,
    )


def write_shares(axes: Axes, rows: Sequence[LayerRow]) -> None:
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
