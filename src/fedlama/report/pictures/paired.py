"""Accuracy against the baseline over the share of its uplink, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedlama.report.numbers.comparison import Comparison
from fedlama.report.numbers.paired import Pair, paired
from fedlama.report.pictures.style import GRID, INK, MUTED, PALETTE, png, styled, svg
from fedlama.run.files import write_atomically

WITHIN = 0.5  # points: as good as the baseline for most purposes


def draw_paired(comparison: Comparison, folder: Path) -> Path:
    """The picture as paired.svg and paired.png in a folder; the path of the former."""
    config = comparison.settings[0].config
    title = f"{config.data.name}, {config.model.name}, {config.train.iterations} steps"
    pairs = paired(comparison)
    path = folder / "paired.svg"
    write_atomically(path, svg(paired_figure(pairs, title)))
    write_atomically(folder / "paired.png", png(paired_figure(pairs, title)))
    return path


@styled
def paired_figure(pairs: Sequence[Pair], title: str) -> Figure:
    """Points with standard errors; a line through plain FedAvg.

    Arguments:
        pairs: the baseline first.
        title: what was trained on what.
    """
    figure = Figure(figsize=(8.6, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.axhspan(-WITHIN, WITHIN, color=GRID, alpha=0.6, linewidth=0)
    through = sorted((pair for pair in pairs if pair.is_plain), key=lambda pair: pair.uplink_share)
    axes.plot(
        [pair.uplink_share for pair in through], [100 * pair.mean for pair in through], color=MUTED, linewidth=1.5
    )
    for pair in pairs:
        _draw(axes, pair)
    _label_axes(axes, pairs[0].label)
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    return figure


def _draw(axes: Axes, pair: Pair) -> None:
    colour = PALETTE[0]
    marker = "D"
    if pair.is_plain:
        colour = MUTED
        marker = "o"
    error = None if pair.error is None else 100 * pair.error
    axes.errorbar(
        pair.uplink_share, 100 * pair.mean, error, fmt=marker, color=colour, markersize=6, capsize=2, elinewidth=1
    )
    axes.annotate(
        pair.label,
        (pair.uplink_share, 100 * pair.mean),
        xytext=(6, 4),
        textcoords="offset points",
        fontsize=7,
        color=colour,
    )


def _label_axes(axes: Axes, baseline: str) -> None:
    axes.set_xscale("log")
    axes.set_xlabel(f"uplink bytes as a share of those of {baseline}")
    axes.set_ylabel(f"accuracy beside {baseline}, points")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.12)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
