"""The README's picture, docs/images/frontier.png: python results/frontier_picture.py

Accuracy beside FedAvg(6) over the share of its uplink on a logarithmic axis, from the summaries below results/frontier:
FedAvg's line, FedLAMA, what others published, and frugal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from paired import comparison_of

from fedlama.report.numbers.pairs import Pair, paired
from fedlama.report.pictures.style import GRID, MUTED, PALETTE, png, styled, titled

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent / "frontier"
FRUGAL, OURS, PUBLISHED = PALETTE[1], PALETTE[0], PALETTE[2]
SHOWN: Mapping[str, str] = {
    "FedAvg(6)": MUTED,
    "FedAvg(12)": MUTED,
    "FedAvg(24)": MUTED,
    "FedAvg(48)": MUTED,
    "FedLAMA(6, 4)": OURS,
    "Budget(6, 24, 0.4)": OURS,
    "FedLUAR(6, 1)": PUBLISHED,
    "FedPart(6)": PUBLISHED,
    "Top 1 % + feedback": PUBLISHED,
    "Rank 1 + feedback": PUBLISHED,
    "8 bits": PUBLISHED,
    "4 bits": PUBLISHED,
    "Rotate(1)": PUBLISHED,
    "frugal": FRUGAL,
    "Rotate(0.135)": FRUGAL,
    "Rotate(0.15)": FRUGAL,
    "FedLAMA(6, 4) + Rotate(0.58)": FRUGAL,
    "frugal, averaged 0.5": FRUGAL,
}
NAMES: Mapping[str, str] = {
    "Rotate(1)": "one-bit EDEN",
    "Rotate(0.135)": "its code at 0.5 %",
    "Rotate(0.15)": "its code at 0.5 %",
    "Top 1 % + feedback": "top 1 %",
    "Rank 1 + feedback": "rank 1",
    "FedLAMA(6, 4) + Rotate(0.58)": "FedLAMA(6, 4), coded",
}
# Where there is room for a label
BELOW = (
    "Rank 1 + feedback",
    "Budget(6, 24, 0.4)",
    "Rotate(0.135)",
    "Rotate(0.15)",
)
LEFT = (
    "Budget(6, 24, 0.4)",
    "FedLAMA(6, 4)",
    "FedLUAR(6, 1)",
    "Top 1 % + feedback",
    "FedAvg(12)",
    "FedAvg(24)",
    "FedAvg(48)",
)
DIGITS = "digits, a small CNN"
WRITERS = "UNIPEN-62 by writer, an MLP"
RESNET = "CIFAR-10, ResNet20"
# Where others leave no room for them: the offset of a label in points, and its alignment
MOVED: Mapping[tuple[str, str], tuple[float, float, str]] = {
    (DIGITS, "Budget(6, 24, 0.4)"): (8, -9, "left"),
    (WRITERS, "Budget(6, 24, 0.4)"): (8, -14, "left"),
    (WRITERS, "FedLUAR(6, 1)"): (8, -14, "left"),
    (DIGITS, "FedPart(6)"): (8, -13, "left"),
    (WRITERS, "Rotate(0.15)"): (-8, -24, "left"),
    (RESNET, "FedLAMA(6, 4) + Rotate(0.58)"): (8, 4, "left"),
    (RESNET, "frugal, averaged 0.5"): (8, -12, "left"),
}
MEANINGS: Mapping[str, str] = {
    FRUGAL: "codes of about a hundredth: frugal, and FedLAMA with codes",
    OURS: "layer-wise intervals without codes",
    PUBLISHED: "what others published",
    MUTED: "FedAvg at longer intervals",
}
COLUMNS = 2
LEAST_SETTINGS = 4  # of a panel
WITHIN = 0.5  # points: as good as FedAvg(6) for most purposes
# Points; what lost more is marked at the lower edge, or it would press the others together
LOWEST = -4.0
RECIPE = ROOT / "src/fedlama/paper/recipes/frontier.toml"
PANELS = (
    (DIGITS, RECIPE, HERE / "digits"),
    (WRITERS, HERE / "unipen62.toml", HERE / "unipen62"),
    (RESNET, HERE / "cifar10.toml", HERE / "cifar10"),
)


def shown_pairs(file: Path, folder: Path) -> list[Pair]:
    """The settings of the picture, of those that are finished."""
    pairs = paired(comparison_of(file, folder))
    return [pair for pair in pairs if pair.label in SHOWN]


def draw(axes: Axes, title: str, pairs: Sequence[Pair]) -> None:
    """One data set."""
    axes.axhspan(-WITHIN, WITHIN, color=GRID, alpha=0.6, linewidth=0)
    line = sorted(
        (pair for pair in pairs if pair.is_plain), key=lambda pair: pair.uplink_share
    )
    axes.plot(
        [pair.uplink_share for pair in line],
        [100 * pair.mean for pair in line],
        color=MUTED,
        linewidth=1.5,
    )
    for pair in pairs:
        if 100 * pair.mean < LOWEST:
            _mark_below(axes, pair)
            continue
        error = None if pair.error is None else 100 * pair.error
        colour = SHOWN[pair.label]
        is_frugal = pair.label.startswith("frugal")
        across, up, side = _label_place(title, pair.label)
        axes.errorbar(
            pair.uplink_share,
            100 * pair.mean,
            error,
            fmt="o" if pair.is_plain else "D",
            color=colour,
            markersize=9 if is_frugal else 5,
            capsize=2,
            elinewidth=1,
        )
        axes.annotate(
            f"{NAMES.get(pair.label, pair.label)} [{len(pair.seeds)}]",
            (pair.uplink_share, 100 * pair.mean),
            xytext=(across, up),
            textcoords="offset points",
            ha=side,
            fontsize=11 if is_frugal else 7.5,
            fontweight="bold" if is_frugal else "normal",
            color=colour,
        )
    axes.set_ylim(LOWEST - 0.3, 0.7)
    axes.set_xscale("log")
    axes.set_xlim(0.003, 3.0)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("uplink bytes, as a share of FedAvg(6)'s")
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    titled(axes, f"{title}; seeds in brackets")


def _label_place(title: str, label: str) -> tuple[float, float, str]:
    """Where the label of a point stands beside it."""
    moved = MOVED.get((title, label))
    if moved is not None:
        return moved
    up = -14 if label in BELOW else 6
    if label in LEFT:
        return -8, up, "right"
    return 8, up, "left"


def _mark_below(axes: Axes, pair: Pair) -> None:
    colour = SHOWN[pair.label]
    axes.plot(pair.uplink_share, LOWEST, "v", color=colour, markersize=6)
    is_left = pair.label in BELOW or pair.is_plain
    axes.annotate(
        f"{NAMES.get(pair.label, pair.label)} [{len(pair.seeds)}]: {100 * pair.mean:.1f}".replace(
            "-", "−"
        ),
        (pair.uplink_share, LOWEST),
        xytext=(-8 if is_left else 8, -2),
        textcoords="offset points",
        ha="right" if is_left else "left",
        fontsize=7.5,
        color=colour,
    )


@styled
def picture() -> Figure:
    """The data sets side by side, those of which enough is finished; seeds are in brackets."""
    panels: list[tuple[str, list[Pair]]] = []
    for title, file, folder in PANELS:
        pairs = shown_pairs(file, folder)
        if len(pairs) >= LEAST_SETTINGS:
            panels.append((title, pairs))
    rows = math.ceil(len(panels) / COLUMNS)
    figure = Figure(figsize=(14.5, 4.6 * rows), layout="constrained")
    places = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for axes, (title, pairs) in zip(places, panels, strict=False):
        draw(axes, title, pairs)
    for axes in places[::COLUMNS]:
        axes.set_ylabel("accuracy beside FedAvg(6), points")
    for axes in places[len(panels) :]:
        explain(axes)
    return figure


def explain(axes: Axes) -> None:
    """What the colours mean, where no data set is."""
    axes.set_axis_off()
    for number, (colour, meaning) in enumerate(MEANINGS.items()):
        height = 0.8 - 0.14 * number
        marker = "o" if colour == MUTED else "D"
        axes.plot(0.06, height, marker, color=colour, markersize=8)
        axes.text(0.1, height, meaning, color=colour, fontsize=12, va="center")
    axes.text(
        0.06,
        0.8 - 0.14 * len(MEANINGS),
        f"grey band: within {WITHIN} points of FedAvg(6)\nbars: one standard error of paired differences",
        fontsize=11,
        va="center",
    )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


if __name__ == "__main__":
    (ROOT / "docs/images/frontier.png").write_bytes(png(picture()))
