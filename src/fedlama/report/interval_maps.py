"""Each layer's interval over the cycles of a run, as spans of cycles with one interval."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlama.report.comparison import Comparison, Setting
from fedlama.report.style import INK, colour, shortened, styled
from fedlama.run.directory import Run

FAINTEST = 0.12  # the shade of the shortest interval, as in charts.js


@dataclass(frozen=True)
class Span:
    """A layer's interval from one cycle to another, both counted."""

    layer: str
    first: int
    last: int
    interval: int


@dataclass(frozen=True)
class IntervalMap:
    """One run's spans, layer by layer in the model's order."""

    index: int  # of the setting, for its colour
    label: str
    seed: int
    layers: list[str]
    spans: list[Span]

    @property
    def intervals(self) -> list[int]:
        """The intervals that occur, the shortest first."""
        return sorted({span.interval for span in self.spans})

    @property
    def cycles(self) -> int:
        """How many cycles the run has."""
        return max(span.last for span in self.spans)


def interval_maps(comparison: Comparison) -> list[IntervalMap]:
    """One for each setting that adapts, from the first of its runs."""
    found = [_interval_map(index, setting) for index, setting in enumerate(comparison.settings) if setting.adapts]
    return [one for one in found if one]


def _interval_map(index: int, setting: Setting) -> IntervalMap | None:
    run = setting.runs[0]
    cycles, names = _intervals_by_cycle(run), [layer.name for layer in setting.layers]
    if not cycles or any(len(intervals) != len(names) for intervals in cycles.values()) or not names:
        return None
    spans = [
        span for place, name in enumerate(names) for span in _spans(name, {c: i[place] for c, i in cycles.items()})
    ]
    return IntervalMap(index, setting.label, run.seed, names, spans)


def _intervals_by_cycle(run: Run) -> dict[int, list[int]]:
    """Intervals change at the end of a cycle only, so any round of it tells them."""
    return {record["cycle"]: record["intervals"] for record in run.records}


def _spans(layer: str, intervals: dict[int, int]) -> list[Span]:
    spans: list[Span] = []
    for interval, group in groupby(sorted(intervals.items()), key=lambda pair: pair[1]):
        members = [cycle for cycle, _ in group]
        spans.append(Span(layer, members[0], members[-1], interval))
    return spans


@styled
def interval_figure(one: IntervalMap) -> Figure:
    """The still picture: a row a layer, a column a cycle, the darker the longer."""
    many = len(one.layers) > 24
    figure = Figure(figsize=(5.0, 0.9 + (0.15 if many else 0.24) * len(one.layers)), layout="constrained")
    axes = figure.subplots()
    low, high = one.intervals[0], one.intervals[-1]
    pixels = [[(0.0, 0.0, 0.0, 0.0)] * one.cycles for _ in one.layers]
    places = {name: place for place, name in enumerate(one.layers)}
    for span in one.spans:
        shade = FAINTEST + (1 - FAINTEST) * (span.interval - low) / ((high - low) or 1)
        width = span.last - span.first + 1
        pixels[places[span.layer]][span.first - 1 : span.last] = [(*to_rgb(colour(one.index)), shade)] * width
    extent = (0.5, one.cycles + 0.5, len(one.layers) - 0.5, -0.5)
    axes.imshow(pixels, aspect="auto", interpolation="nearest", extent=extent)
    axes.set_yticks(
        range(len(one.layers)), [shortened(name) for name in one.layers], fontsize=7 if many else 9, color=INK
    )
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("cycle")
    return figure
