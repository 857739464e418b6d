"""The pictures: what was reached over steps and over bytes, and how often each layer was averaged.

Figures are made with matplotlib's objects, not with pyplot: no display, no global state, nothing to close.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedlama.report.comparison import Comparison, Curve
from fedlama.report.formats import count_text, human_bytes
from fedlama.report.layer_rows import LayerRow, layer_rows
from fedlama.report.style import GRID, INK, MUTED, colour, dashes, legend_label, say_nothing, shortened, styled, titled

MOST_BARS = 48  # more bars than this are drawn as lines
MOST_LAYERS = 100  # of a model with more, the largest
MOST_ENDS = 8
LEGEND_DENSITY, TITLE_DENSITY = 10.4, 10  # characters an inch
LEGEND_LINE = 0.2  # inches
LABEL_LINE = 0.07  # height of a label in parts of a score panel
SMALL_SHARE = 0.0005
SHARE_COLUMN = 62  # points right of the axes


@styled
def report_figure(comparison: Comparison) -> Figure:
    """The three panels in one picture, with one legend; many layers get a row of their own."""
    many, layers = many_bars(comparison), _layers_height(comparison)
    figure = Figure(layout="constrained")
    height = 5.4 + layers if many else max(7.0, 1.6 + layers)
    figure.set_size_inches(12.5, height)
    lines = _legend(figure, comparison)
    figure.set_size_inches(12.5, height + LEGEND_LINE * (lines - 1))
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12, hspace=0.04, wspace=0.05)  # pyright: ignore
    grid = figure.add_gridspec(2, 2, height_ratios=[3.6, layers + 0.8] if many else [1, 1])
    draw_score(figure.add_subplot(grid[0, 0]), comparison, over="steps")
    draw_score(figure.add_subplot(grid[0, 1] if many else grid[1, 0]), comparison, over="uplink_bytes")
    draw_layers(figure.add_subplot(grid[1, :] if many else grid[:, 1]), comparison)
    return figure


@styled
def score_figure(comparison: Comparison, over: str) -> Figure:
    """One of the two score panels by itself."""
    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.subplots()
    draw_score(axes, comparison, over)
    axes.set_title("", loc="left")  # the page has it
    return figure


@styled
def layers_figure(comparison: Comparison, of: str = "aggregations") -> Figure:
    """The layers' panel by itself, of their "aggregations" or of their "uplink_bytes"."""
    figure = Figure(figsize=(5.0, 0.8 + _layers_height(comparison)), layout="constrained")
    axes = figure.subplots()
    draw_layers(axes, comparison, of)
    axes.set_title("", loc="left")  # the page has it
    return figure


def draw_score(axes: Axes, comparison: Comparison, over: str) -> None:
    """The score over "steps" or over "uplink_bytes": the mean as a line, the range over seeds behind it."""
    unit, scale = byte_unit(comparison) if over == "uplink_bytes" else ("", 1.0)
    for index, setting in enumerate(comparison.settings):
        places = [place / scale for place in getattr(setting.curve, over)]
        if places:
            _draw_curve(axes, places, setting.curve, index, finished=setting.finished)
    titled(axes, f"{comparison.metric.capitalize()} over {'steps' if over == 'steps' else 'bytes sent'}")
    axes.set_xlabel("steps of every client" if over == "steps" else f"uplink of all clients, {unit}")
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    _scale_score(axes, comparison)
    if over == "steps":
        _label_ends(axes, comparison)


def _draw_curve(axes: Axes, places: Sequence[float], curve: Curve, index: int, *, finished: bool) -> None:
    axes.fill_between(places, curve.low, curve.high, color=colour(index), alpha=0.16, linewidth=0)
    axes.plot(places, curve.mean, color=colour(index), linestyle=dashes(index), linewidth=1.8)
    # A filled dot is where a setting ended, a hollow one where it stands.
    face = colour(index) if finished else "none"
    axes.plot(places[-1:], curve.mean[-1:], "o", color=colour(index), markerfacecolor=face, markersize=6, clip_on=False)


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
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def late_range(comparison: Comparison) -> tuple[float, float] | None:
    """The range of the curves' second half, where settings differ by little; the first rise may leave the picture."""
    curves = [setting.curve for setting in comparison.settings if setting.curve.steps]
    if not curves:
        return None
    low = min(min(_late(curve, curve.low)) for curve in curves)
    return low, max(max(_late(curve, curve.high)) for curve in curves)


def _late(curve: Curve, values: Sequence[float]) -> list[float]:
    return [value for step, value in zip(curve.steps, values, strict=True) if 2 * step >= curve.steps[-1]]


def _label_ends(axes: Axes, comparison: Comparison) -> None:
    """What each curve ends at, in its colour, in a column where no two labels share a line."""
    ends = sorted((s.curve.mean[-1], index) for index, s in enumerate(comparison.settings) if s.curve.steps)
    low, high = axes.get_ylim()
    below = -1.0
    for value, index in ends[-MOST_ENDS:]:
        below = max((value - low) / (high - low), below + LABEL_LINE)
        text = f"{100 * value:.1f} %" if comparison.metric == "accuracy" else f"{value:.3f}"
        axes.text(1.03, below, text, transform=axes.transAxes, va="center", color=colour(index), fontweight="bold")


def byte_unit(comparison: Comparison) -> tuple[str, float]:
    """The unit in which the longest curve has a readable length."""
    largest = max((place for setting in comparison.settings for place in setting.curve.uplink_bytes), default=0.0)
    return next(((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if largest >= size), ("B", 1.0))


def shown_rows(comparison: Comparison) -> list[LayerRow]:
    """The layers that are drawn: all, or the largest of a very deep model, in the model's order."""
    rows = layer_rows(comparison)
    largest = sorted(range(len(rows)), key=lambda index: -(rows[index].size or 0))[:MOST_LAYERS]
    return [rows[index] for index in sorted(largest)]


def many_bars(comparison: Comparison) -> bool:
    """Whether bars would be too many to tell apart."""
    return len(shown_rows(comparison)) * len(comparison.settings) > MOST_BARS


def _layers_height(comparison: Comparison) -> float:
    """Inches: every name keeps a line of its own, and few layers fill the height of the two panels beside them."""
    layers, settings = len(shown_rows(comparison)), len(comparison.settings)
    if many_bars(comparison):
        return 0.17 * layers
    least = (0.13 * settings + 0.1) * layers
    return max(2.6, least, min(5.9, 1.7 * least))


def draw_layers(axes: Axes, comparison: Comparison, of: str = "aggregations") -> None:
    """Aggregations (or bytes) of every layer, first layer on top, its share of the model at the right."""
    rows, many = shown_rows(comparison), many_bars(comparison)
    if not rows:
        say_nothing(axes, "no round yet")
        return
    for index in range(len(comparison.settings)):
        (_draw_dots if many else _draw_bars)(axes, rows, index, comparison, of)
    titled(axes, "Aggregations per layer")
    counted = "times averaged over the run" if of == "aggregations" else "bytes sent by all clients"
    axes.set_xlabel(f"{counted}{_layers_note(rows, comparison)}")
    axes.set_yticks(range(len(rows)), [shortened(row.name) for row in rows], fontsize=8 if many else 10)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6 if of == "aggregations" else 4, integer=True, steps=[1, 2, 5, 10]))
    if of == "uplink_bytes":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: human_bytes(count)))
    axes.grid(axis="both" if many else "x", color=GRID, linewidth=0.8)
    axes.spines["bottom"].set_visible(False)
    _write_shares(axes, rows)


def _draw_bars(axes: Axes, rows: Sequence[LayerRow], index: int, comparison: Comparison, of: str) -> None:
    setting, height = comparison.settings[index], 0.8 / len(comparison.settings)
    places = [place - 0.4 + (index + 0.5) * height for place in range(len(rows))]
    counts = [layer_value(row, index, of) or 0.0 for row in rows]
    bars = axes.barh(places, counts, height=0.86 * height, color=colour(index), alpha=1.0 if setting.finished else 0.5)
    texts = [count_text(count) if of == "aggregations" else human_bytes(count) for count in counts]
    axes.bar_label(bars, texts, padding=3, fontsize=8, color=MUTED)


def _draw_dots(axes: Axes, rows: Sequence[LayerRow], index: int, comparison: Comparison, of: str) -> None:
    """A dot a layer and setting, its area growing with the layer's share; side by side where they would hide others."""
    setting, shift = comparison.settings[index], 0.5 * ((index + 0.5) / len(comparison.settings) - 0.5)
    found = [(place + shift, layer_value(row, index, of), row) for place, row in enumerate(rows)]
    places, counts = (
        [place for place, count, _ in found if count is not None],
        [n for _, n, _ in found if n is not None],
    )
    areas = [12 + 300 * (row.share or 0.0) for _, count, row in found if count is not None]
    face = colour(index) if setting.finished else "none"
    axes.scatter(counts, places, areas, facecolor=face, edgecolor=colour(index), linewidth=0.8, zorder=3, clip_on=False)


def layer_value(row: LayerRow, index: int, of: str) -> float | None:
    """A layer's aggregations or bytes in one setting; None where that is not known."""
    count = row.counts[index]
    return None if count is None else getattr(count, of)


def _write_shares(axes: Axes, rows: Sequence[LayerRow]) -> None:
    """A column of its own, right of the axes: what a layer weighs says how much its aggregations matter."""
    if not any(row.share for row in rows):
        return
    beside, column = axes.get_yaxis_transform(), {"ha": "right", "fontsize": 8}
    for place, row in enumerate(rows):
        small = (row.share or 0.0) < SMALL_SHARE
        text, ink = ("< 0.1 %", MUTED) if small else (f"{100 * (row.share or 0.0):.1f} %", INK)
        axes.annotate(text, (1, place), (SHARE_COLUMN, 0), beside, "offset points", va="center", color=ink, **column)
    below = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top", "color": MUTED}
    axes.annotate("share of\nthe model", (1, 0), (SHARE_COLUMN, -6), **below, **column)


def _layers_note(rows: Sequence[LayerRow], comparison: Comparison) -> str:
    everything = len(layer_rows(comparison))
    return f"\nthe {len(rows)} largest of {everything} layers" if len(rows) < everything else ""


@styled
def standing_alone(figure: Figure, title: str, comparison: Comparison | None = None) -> Figure:
    """A figure made for the page with what the page says around it: a title and, of a comparison, the settings."""
    width, height = figure.get_size_inches()
    title = "\n".join(fill(line, int(TITLE_DENSITY * width)) for line in title.splitlines())
    if comparison is None:
        titled(figure.axes[0], title)
        lines = title.count("\n")
    else:
        lines = _legend(figure, comparison, title) + title.count("\n") + 1
    figure.set_size_inches(width, height + LEGEND_LINE * (lines + 1))
    return figure


def _legend(figure: Figure, comparison: Comparison, title: str | None = None) -> int:
    """Above all panels, under a title if there is one; the number of its lines."""
    lines = [
        Line2D([], [], color=colour(index), linestyle=dashes(index), linewidth=2.5, label=legend_label(setting))
        for index, setting in enumerate(comparison.settings)
    ]
    longest = max(len(str(line.get_label())) for line in lines)
    columns = max(1, min(len(lines), int(LEGEND_DENSITY * figure.get_figwidth()) // (longest + 6)))
    shape: dict[str, Any] = {"loc": "outside upper left", "ncols": columns, "frameon": False, "alignment": "left"}
    bold = {"weight": "bold", "size": 11}
    figure.legend(handles=lines, title=title, title_fontproperties=bold, fontsize=10.5, labelcolor=INK, **shape)
    return -(-len(lines) // columns)
