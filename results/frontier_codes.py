"""docs/images/frontier-codes.png, which combination is best at which share: python results/frontier_codes.py

A is an unbiased code, B the same with feedback within a window, C FedLAMA(6, 4) with such a code, and B + C both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from frontier_picture import DEMO, IMAGES, PANEL_HEIGHT, TEXT, WIDTH, WITHIN
from frontier_studies import pairs_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from fedlama.report.numbers.pairs import Pair
from fedlama.report.pictures.style import GRID, INK, MUTED, colour, png, styled, titled

PANELS: Mapping[str, str] = {
    "digits, small CNN, learning rate 0.1": "digits",
    "UNIPEN-62 by writer, MLP, learning rate 0.3": "unipen62",
}
CODE = re.compile(
    r"(?P<policy>FedLAMA\(6, 4\)|FedAvg\(12\))?( \+ )?Rotate\([\d.]+\)(?P<feedback> \+ window feedback)?"
)
TICKS = (0.0025, 0.005, 0.01, 0.02, 0.05)


@dataclass(frozen=True)
class Combination:
    """A line of the chart."""

    meaning: str
    colour: str
    dashes: str
    aside: float  # by how much its points are moved along the axis, or they would hide each other


# The colours of frugal and of FedLAMA
OF_CODES = colour(DEMO.index("frugal"))
OF_INTERVALS = colour(DEMO.index("FedLAMA(6, 4)"))
COMBINATIONS: Mapping[str, Combination] = {
    "A": Combination("A: code", OF_CODES, "-", 0.97),
    "B": Combination("B: code, feedback", OF_CODES, ":", 1.03),
    "C": Combination("C: FedLAMA(6, 4), code", OF_INTERVALS, "-", 0.97),
    "B + C": Combination("B + C: all three", OF_INTERVALS, ":", 1.03),
}


def combination_of(label: str) -> str | None:
    """A, B, C or B + C; None for another setting."""
    found = CODE.fullmatch(label)
    if found is None:
        return None
    is_layerwise = found["policy"] == "FedLAMA(6, 4)"
    if found["feedback"] is None:
        return "C" if is_layerwise else "A"
    return "B + C" if is_layerwise else "B"


@styled
def picture() -> Figure:
    """Both sets, one below the other."""
    height = 1.1 + PANEL_HEIGHT * len(PANELS)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    places = list(figure.subplots(len(PANELS), 1, squeeze=False).flat)
    for axes, (title, name) in zip(places, PANELS.items(), strict=True):
        _draw(axes, pairs_of(name))
        titled(axes, title)
    places[-1].set_xlabel(
        "uplink bytes, as a share of FedAvg(6)'s; hollow: FedAvg(12)", fontsize=TEXT
    )
    figure.supylabel("points of accuracy beside FedAvg(6)", fontsize=TEXT, color=INK)
    figure.legend(
        *places[0].get_legend_handles_labels(),
        loc="outside upper left",
        ncols=2,
        frameon=False,
        fontsize=TEXT,
    )
    return figure


def _draw(axes: Axes, pairs: list[Pair]) -> None:
    axes.axhspan(-WITHIN, WITHIN, color=GRID, alpha=0.7, linewidth=0)
    for name, look in COMBINATIONS.items():
        own = [pair for pair in pairs if combination_of(pair.label) == name]
        own.sort(key=lambda pair: pair.uplink_share)
        for pair in own:
            axes.errorbar(
                pair.uplink_share * look.aside,
                100 * pair.mean,
                None if pair.error is None else 100 * pair.error,
                fmt="o",
                color=look.colour,
                markerfacecolor="white" if "FedAvg(12)" in pair.label else look.colour,
                markersize=6,
                elinewidth=1,
            )
        axes.plot(
            [pair.uplink_share * look.aside for pair in own],
            [100 * pair.mean for pair in own],
            color=look.colour,
            linestyle=look.dashes,
            linewidth=2,
            zorder=1,
            label=look.meaning,
        )
    axes.set_xscale("log")
    axes.set_xticks(TICKS)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.tick_params(labelsize=TEXT, labelcolor=MUTED)


if __name__ == "__main__":
    (IMAGES / "frontier-codes.png").write_bytes(png(picture()))
