"""Pictures that stand alone: the three panels in one, and a figure of the page with a title and a legend of its own."""

from __future__ import annotations

from textwrap import fill
from typing import Any, Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.layers import drawn_rows
from fedlama.report.pictures.layers import draw_layers, height_in_inches, many_bars
from fedlama.report.pictures.measures import score
from fedlama.report.pictures.scores import draw_score
from fedlama.report.pictures.style import (
    INK,
    colour,
    dashes,
    legend_label,
    marker,
    styled,
)
from fedlama.report.words.formats import seeds_named
from fedlama.report.words.notes import warnings_of

TITLE_FONT: dict[str, Any] = {"weight": "bold", "size": 11}
LEGEND_DENSITY = 10.4  # characters per inch
TITLE_DENSITY = 10
LEGEND_LINE = 0.2  # inches
# How a legend shows a setting: as the drawing does
Sample = Literal["line", "bar", "dot", "point"]

WIDTH = 12.5
# Of one that stands alone: its letters can be read on a phone
ALONE = 5.0


@styled
def report_figure(comparison: RunComparison) -> Figure:
    """The three panels in one picture, with one legend; many layers get a row of their own."""
    shown = drawn_rows(comparison)
    many = many_bars(shown, comparison)
    layers = height_in_inches(shown, comparison)
    height = max(7.0, 1.6 + layers)
    if many:
        height = 5.4 + layers

    figure = Figure(layout="constrained")
    figure.set_size_inches(WIDTH, height)
    warnings = " ".join(warnings_of(comparison))
    warning = fill(warnings, int(TITLE_DENSITY * WIDTH))
    lines = _legend(figure, comparison, warning)
    if warning:
        lines += 1 + warning.count("\n")
    # What stands above the panels must not take of their height.
    above = LEGEND_LINE * (lines - 1)
    figure.set_size_inches(WIDTH, height + above)
    spacing = {"w_pad": 0.12, "h_pad": 0.12, "hspace": 0.04, "wspace": 0.05}
    figure.get_layout_engine().set(**spacing)  # pyright: ignore

    if many:
        grid = figure.add_gridspec(2, 2, height_ratios=[3.6, layers + 0.8])
        places = (grid[0, 0], grid[0, 1], grid[1, :])
    else:
        grid = figure.add_gridspec(2, 2, height_ratios=[1, 1])
        places = (grid[0, 0], grid[1, 0], grid[:, 1])
    over_steps, over_bytes, by_layer = places

    measure = score(comparison)
    axes = figure.add_subplot(over_steps)
    draw_score(axes, comparison, measure, over="steps")
    axes = figure.add_subplot(over_bytes)
    draw_score(axes, comparison, measure, over="bytes")
    axes = figure.add_subplot(by_layer)
    draw_layers(axes, shown, comparison)
    return figure


@styled
def standing_alone(
    figure: Figure,
    title: str,
    comparison: RunComparison | None = None,
    sample: Sample = "line",
) -> Figure:
    """A figure made for the page with what the page says around it.

    Arguments:
        figure: one of the page's; it is changed.
        title: what goes above it; its lines are broken to the figure's width.
        comparison: the settings for a legend; None where the curves are named in the drawing.
        sample: how the drawing shows a setting; "point" is a dot or, for what is compared with FedAvg, a diamond.
    """
    width, height = figure.get_size_inches()
    width = min(width, ALONE)
    letters = int(TITLE_DENSITY * width)
    broken = [fill(line, letters) for line in title.splitlines()]
    text = "\n".join(broken)

    figure.set_size_inches(width, height)
    lines = text.count("\n")
    if comparison is None:
        # From the edge of the figure, whose width the lines are broken to, and not from that of the axes
        figure.suptitle(text, x=0.01, ha="left", **TITLE_FONT)
    else:
        lines += 1 + _legend(figure, comparison, text, sample)
    above = LEGEND_LINE * (lines + 1)
    figure.set_size_inches(width, height + above)
    return figure


def _legend(
    figure: Figure,
    comparison: RunComparison,
    title: str,
    sample: Sample = "line",
) -> int:
    """Above all panels, under a title if there is one; the number of its lines."""
    samples: list[Line2D | Patch] = []
    longest = 0
    for setting in comparison.settings:
        label = f"{legend_label(setting)}{_fewer_seeds(setting, comparison)}"
        samples.append(_sample_of(setting, label, sample))
        longest = max(longest, len(label))

    fitting = int(LEGEND_DENSITY * figure.get_figwidth()) // (longest + 6)
    columns = max(1, min(len(samples), fitting))
    figure.legend(
        handles=samples,
        title=title or None,
        title_fontproperties=TITLE_FONT,
        fontsize=10.5,
        labelcolor=INK,
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        alignment="left",
    )
    return -(-len(samples) // columns)


def _sample_of(setting: ComparedSetting, label: str, sample: Sample) -> Line2D | Patch:
    own = colour(setting.look)
    if sample == "bar":
        return Patch(color=own, label=label)
    if sample == "line":
        return Line2D(
            [],
            [],
            color=own,
            linestyle=dashes(setting.look),
            linewidth=2.5,
            label=label,
        )

    is_diamond = sample == "point" and setting.adapts
    return Line2D(
        [],
        [],
        color=own,
        linestyle="none",
        marker=marker(is_diamond),
        markersize=8,
        label=label,
    )


def _fewer_seeds(setting: ComparedSetting, comparison: RunComparison) -> str:
    """Which seeds a setting's points and curves are over, where others have more of them."""
    every: set[int] = set()
    for one in comparison.settings:
        every.update(one.seeds)
    if set(setting.seeds) == every:
        return ""

    return f" ({seeds_named(setting.seeds)})"
