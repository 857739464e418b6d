"""Accuracy against the baseline over the share of its uplink, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.pairs import Pair, paired
from fedlama.report.pictures.style import GRID, INK, MUTED, PALETTE, png, styled, svg
from fedlama.report.words.formats import plural
from fedlama.report.words.notes import warnings_of
from fedlama.run.files import write_atomically

WITHIN = 0.5  # points: as good as the baseline for most purposes
RECOMMENDED = "frugal"
NEAR_X = 0.06  # powers of ten: closer points have one label
NEAR_Y = 0.12  # points of accuracy


def draw_paired(comparison: RunComparison, folder: Path) -> Path:
    """The picture as paired.svg and paired.png in a folder; the path of the former."""
    config = comparison.settings[0].config
    pairs = paired(comparison)
    facts = (
        f"{config.data.name}",
        f"{config.model.name}",
        f"{config.train.iterations} steps",
        _seeds(pairs),
    )
    title = ", ".join(facts)
    for warning in warnings_of(comparison):
        title = f"{warning}\n{title}"

    path = folder / "paired.svg"
    figure = paired_figure(pairs, title)
    write_atomically(path, svg(figure))
    figure = paired_figure(pairs, title)
    write_atomically(folder / "paired.png", png(figure))
    return path


def _seeds(pairs: Sequence[Pair]) -> str:
    counts = [len(pair.seeds) for pair in pairs]
    fewest = min(counts)
    most = max(counts)
    if fewest == most:
        return plural(most, "seed")
    return f"{fewest} to {plural(most, 'seed')}"


@styled
def paired_figure(pairs: Sequence[Pair], title: str) -> Figure:
    """Points with standard errors, numbered as in the list beside them; a line through plain FedAvg.

    Arguments:
        pairs: the baseline first.
        title: what was trained on what.
    """
    figure = Figure(
        figsize=(10.5, max(4.6, 0.19 * len(pairs) + 0.6)), layout="constrained"
    )
    axes = figure.subplots()
    axes.axhspan(-WITHIN, WITHIN, color=GRID, alpha=0.6, linewidth=0)
    through = sorted(
        (pair for pair in pairs if pair.is_plain), key=lambda pair: pair.uplink_share
    )
    axes.plot(
        [pair.uplink_share for pair in through],
        [100 * pair.mean for pair in through],
        color=MUTED,
        linewidth=1.5,
    )
    for pair in pairs:
        _draw(axes, pair)
    _number(axes, pairs)
    _list(figure, pairs)
    _label_axes(axes, pairs[0].label)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    return figure


def _colour(pair: Pair) -> str:
    if pair.label.startswith(RECOMMENDED):
        return PALETTE[1]
    if pair.is_plain:
        return MUTED
    return PALETTE[0]


def _marker(pair: Pair) -> str:
    if pair.is_plain:
        return "o"
    return "D"


def _draw(axes: Axes, pair: Pair) -> None:
    error = None
    if pair.error is not None:
        error = 100 * pair.error
    axes.errorbar(
        pair.uplink_share,
        100 * pair.mean,
        error,
        fmt=_marker(pair),
        color=_colour(pair),
        markersize=6,
        capsize=2,
        elinewidth=1,
    )


def _number(axes: Axes, pairs: Sequence[Pair]) -> None:
    """A number beside each point; points that lie on each other share a label."""
    groups: list[list[int]] = []
    for index, pair in enumerate(pairs):
        for group in groups:
            if _are_near(pairs[group[0]], pair):
                group.append(index)
                break
        else:
            groups.append([index])
    for group in groups:
        first = pairs[group[0]]
        axes.annotate(
            ", ".join(str(index + 1) for index in group),
            (first.uplink_share, 100 * first.mean),
            xytext=(7, 3),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )


def _are_near(one: Pair, other: Pair) -> bool:
    ratio = one.uplink_share / other.uplink_share
    decades = abs(math.log10(ratio))
    if decades >= NEAR_X:
        return False
    points = 100 * abs(one.mean - other.mean)
    return points < NEAR_Y


def _list(figure: Figure, pairs: Sequence[Pair]) -> None:
    """The settings by number, beside the picture."""
    entries: list[Line2D] = []
    labels: list[str] = []
    for index, pair in enumerate(pairs):
        entries.append(
            Line2D(
                [],
                [],
                color=_colour(pair),
                marker=_marker(pair),
                linestyle="none",
                markersize=5,
            )
        )
        labels.append(f"{index + 1}  {pair.label}")
    figure.legend(
        entries,
        labels,
        loc="outside right upper",
        frameon=False,
        fontsize=7.5,
        labelspacing=0.35,
        handletextpad=0.1,
    )


def _label_axes(axes: Axes, baseline: str) -> None:
    axes.set_xscale("log")
    axes.set_xlabel(f"uplink bytes as a share of those of {baseline}")
    axes.set_ylabel(f"accuracy beside {baseline}, points")
    ticks = LogLocator(subs=(1.0, 2.0, 5.0))
    axes.xaxis.set_major_locator(ticks)
    as_percentage = FuncFormatter(lambda value, _: f"{100 * value:g} %")
    axes.xaxis.set_major_formatter(as_percentage)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.08)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
