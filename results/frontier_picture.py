"""Pictures of the frontier, in docs/images: python results/frontier_picture.py

frontier.png, the README's first: accuracy beside FedAvg(6) over the share of its uplink on a logarithmic axis, with
FedAvg's line, FedLAMA, what others published, and frugal. frontier-both-ways.png: the same over the bytes of both
directions. frontier-codes.png is of frontier_codes.py. All have one column, and text that a phone shows legibly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from frontier_studies import HEADLINE, ROOT, has_baseline, pairs_of
from labels import Label, place_labels
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedlama.paper.demo import demo_study
from fedlama.report.numbers.pairs import Pair
from fedlama.report.pictures.style import GRID, INK, colour, png, styled, titled

IMAGES = ROOT / "docs/images"
WIDTH = 6.4  # inches: on a phone of 375 pixels a point of text is 0.8 pixels
PANEL_HEIGHT = 2.75
LOW_PANEL = 2.35  # of the README, where text follows that should not be far below
TEXT = 11.5
WITHIN = 0.5  # points: as good as FedAvg(6) for most purposes
LEAST_SETTINGS = 4  # of a panel
# Points; what lost more is marked at the lower edge, or it would press the others together
LOWEST = -4.0
LEAST_LOW = -1.5
LOWEST_OF_RESNET = -10.5


@dataclass(frozen=True)
class Family:
    """Settings that look alike."""

    meaning: str
    colour: str
    marker: str
    size: float


# A setting has one colour in all pictures of the README: that of its place in the demo.
DEMO = [setting.name for setting in demo_study().settings]
FEDAVG = Family("FedAvg", colour(DEMO.index("FedAvg(6)")), "o", 6)
LONG = Family("FedAvg(24)", colour(DEMO.index("FedAvg(24)")), "o", 6)
LAYERWISE = Family("FedLAMA", colour(DEMO.index("FedLAMA(6, 4)")), "D", 6)
FRUGAL = Family("frugal", colour(DEMO.index("frugal")), "D", 10)
PUBLISHED = Family("published by others", INK, "s", 5)
SHOWN: Mapping[str, tuple[str, Family]] = {
    "frugal": ("frugal", FRUGAL),
    "frugal, averaged 0.5": ("frugal, averaged 0.5", FRUGAL),
    # Its place says what it is
    "frugal, 0.5 %": ("", FRUGAL),
    "FedLAMA(6, 4)": ("FedLAMA(6, 4)", LAYERWISE),
    "FedAvg(6)": ("FedAvg(6)", FEDAVG),
    "FedAvg(12)": ("FedAvg(12)", FEDAVG),
    "FedAvg(24)": ("FedAvg(24)", LONG),
    "FedLUAR(6, 1)": ("FedLUAR", PUBLISHED),
    "FedLUAR(6, 12)": ("FedLUAR", PUBLISHED),
    "FedPart(6)": ("FedPart", PUBLISHED),
    "Top 1 % + feedback": ("top 1 %", PUBLISHED),
    "Rank 1 + feedback": ("PowerSGD", PUBLISHED),
    "4 bits": ("4 bits", PUBLISHED),
    "Rotate(1)": ("1 bit, EDEN", PUBLISHED),
}
BOTH_WAYS: Mapping[str, tuple[str, Family]] = {
    "frugal": ("frugal", FRUGAL),
    "frugal, downlink Rotate(1.6)": ("1.6 bits down", FRUGAL),
    "frugal, downlink Rotate(0.8)": ("0.8", FRUGAL),
    "frugal, downlink Rotate(0.32)": ("0.32", FRUGAL),
    "frugal, averaged 0.5": ("frugal, averaged 0.5", FRUGAL),
    "frugal, averaged 0.5, downlink Rotate(1.6)": (
        "averaged 0.5, 1.6 bits down",
        FRUGAL,
    ),
    "FedLAMA(6, 4)": ("FedLAMA(6, 4)", LAYERWISE),
    "FedAvg(6)": ("FedAvg(6)", FEDAVG),
    "FedAvg(12)": ("FedAvg(12)", FEDAVG),
    "FedAvg(24)": ("FedAvg(24)", LONG),
    "4 bits": ("4 bits up", PUBLISHED),
}
DIRECTIONS: Mapping[str, str] = {
    "digits, small CNN, window of 48 steps": "digits",
    "UNIPEN-62, MLP, window of 96 steps": "unipen62",
    "UNIPEN-62, MLP, window of 48 steps": "unipen62-window48",
    "UNIPEN-62, MLP, window of 24 steps": "unipen62-window24",
    "CIFAR-10, ResNet20, window of 24 steps": "cifar10",
}


@dataclass(frozen=True)
class Chart:
    """What all panels of a picture have in common."""

    shown: Mapping[str, tuple[str, Family]]
    share: Callable[[Pair], float]
    axis: str
    smallest: float
    panel_height: float = PANEL_HEIGHT


UPLINK = Chart(
    shown=SHOWN,
    share=lambda pair: pair.uplink_share,
    axis="uplink bytes, as a share of FedAvg(6)'s",
    smallest=0.0016,
    panel_height=LOW_PANEL,
)
TOTAL = Chart(
    shown=BOTH_WAYS,
    share=lambda pair: pair.total_share,
    axis="bytes of both directions, as a share of FedAvg(6)'s",
    smallest=0.03,
)


@styled
def picture() -> Figure:
    """The README's first: the data sets one below the other."""
    return _draw(UPLINK, HEADLINE)


@styled
def both_ways() -> Figure:
    """The same settings' bytes in both directions, and coded downlinks."""
    return _draw(TOTAL, DIRECTIONS)


def _draw(chart: Chart, studies: Mapping[str, str]) -> Figure:
    panels: list[tuple[str, str, list[Pair]]] = []
    for title, name in studies.items():
        pairs = _shown_pairs(chart, name)
        if len(pairs) >= LEAST_SETTINGS:
            panels.append((title, name, pairs))
    height = 0.8 + chart.panel_height * len(panels)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.get_layout_engine().set(hspace=0.06)  # type: ignore[union-attr]
    _explain(figure)
    places = list(figure.subplots(len(panels), 1, squeeze=False).flat)
    for axes, (title, name, pairs) in zip(places, panels, strict=True):
        _draw_points(axes, chart, pairs, _lowest(name))
        _label_axes(axes, chart)
        titled(axes, f"{title}: {_seeds(pairs)}")
    places[-1].set_xlabel(chart.axis, fontsize=TEXT)
    # One label for all, or it would be longer than a panel is high
    figure.supylabel("points of accuracy beside FedAvg(6)", fontsize=TEXT, color=INK)
    # The layout must be settled before places are looked for.
    for axes, (_, name, pairs) in zip(places, panels, strict=True):
        _name_points(axes, chart, pairs, _lowest(name))
    return figure


def _shown_pairs(chart: Chart, name: str) -> list[Pair]:
    """The settings of the picture, of those that are finished."""
    if not has_baseline(name):
        return []
    pairs = [pair for pair in pairs_of(name) if pair.label in chart.shown]
    # In this order labels choose their places.
    order = list(chart.shown)
    return sorted(pairs, key=lambda pair: order.index(pair.label))


def _lowest(name: str) -> float:
    return LOWEST_OF_RESNET if name == "cifar10" else LOWEST


def _seeds(pairs: Sequence[Pair]) -> str:
    """How many seeds the settings of a panel have."""
    counts = sorted({len(pair.seeds) for pair in pairs})
    if counts == [1]:
        return "one seed"
    if len(counts) == 1:
        return f"{counts[0]} seeds"
    return f"{counts[0]} to {counts[-1]} seeds"


def _height(pair: Pair, lowest: float) -> float:
    return max(100 * pair.mean, lowest)


def _draw_points(
    axes: Axes, chart: Chart, pairs: Sequence[Pair], lowest: float
) -> None:
    axes.axhspan(-WITHIN, WITHIN, color=GRID, alpha=0.7, linewidth=0)
    line = _fedavg_line(chart, pairs)
    axes.plot(*zip(*line, strict=True), color=FEDAVG.colour, linewidth=1.5)
    # The band and as much below it at least, or the smallest differences would look like the largest
    heights = [WITHIN, LEAST_LOW]
    for pair in pairs:
        _, family = chart.shown[pair.label]
        height = 100 * pair.mean
        if height < lowest:
            axes.plot(chart.share(pair), lowest, "v", color=family.colour, markersize=7)
            heights.append(lowest)
            continue
        error = 100 * (pair.error or 0.0)
        heights += [height - error, height + error]
        axes.errorbar(
            chart.share(pair),
            height,
            error or None,
            fmt=family.marker,
            color=family.colour,
            markersize=family.size,
            elinewidth=1,
        )
    room = 0.08 * (max(heights) - min(heights))
    axes.set_ylim(max(min(heights), lowest) - room, max(heights) + room)


def _fedavg_line(chart: Chart, pairs: Sequence[Pair]) -> list[tuple[float, float]]:
    plain = [pair for pair in pairs if chart.shown[pair.label][1] in (FEDAVG, LONG)]
    points = [(chart.share(pair), 100 * pair.mean) for pair in plain]
    return sorted(points)


def _label_axes(axes: Axes, chart: Chart) -> None:
    axes.set_xscale("log")
    axes.set_xlim(chart.smallest, 3.5)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=6)  # type: ignore[attr-defined]
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.tick_params(labelsize=TEXT)


def _name_points(
    axes: Axes, chart: Chart, pairs: Sequence[Pair], lowest: float
) -> None:
    labels: list[Label] = []
    for pair in pairs:
        text, family = chart.shown[pair.label]
        error = None if pair.error is None else 100 * pair.error
        if 100 * pair.mean < lowest:
            error = None
            text = f"{text} {100 * pair.mean:.1f}".replace("-", "−")
        is_frugal = family is FRUGAL and text.startswith("frugal")
        style = {
            "color": family.colour,
            "fontsize": TEXT + 1.5 if is_frugal else TEXT,
            "fontweight": "bold" if is_frugal else "normal",
        }
        place = (chart.share(pair), _height(pair, lowest))
        labels.append(Label(text, *place, error, style))
    place_labels(axes, labels, [_fedavg_line(chart, pairs)])


def _explain(figure: Figure) -> None:
    """What colours and markers mean, above all panels."""
    handles: list[Line2D | Patch] = []
    for family in (FEDAVG, FRUGAL, LAYERWISE, PUBLISHED):
        handle = Line2D(
            [],
            [],
            color=family.colour,
            marker=family.marker,
            markersize=family.size,
            linestyle="-" if family is FEDAVG else "none",
            label=family.meaning,
        )
        handles.append(handle)
    handles.append(Patch(color=GRID, label=f"within {WITHIN} points"))
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=3,
        frameon=False,
        fontsize=TEXT,
        columnspacing=1.2,
        handletextpad=0.5,
    )


if __name__ == "__main__":
    (IMAGES / "frontier.png").write_bytes(png(picture()))
    (IMAGES / "frontier-both-ways.png").write_bytes(png(both_ways()))
