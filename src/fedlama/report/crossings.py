"""Figure 1 of the paper for runs of our own: where δ_l overtakes 1 − λ_l, and which layers that lengthens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fedlama.core import adjust_intervals, crossing_curves
from fedlama.report.comparison import Comparison, Setting
from fedlama.report.style import GRID, INK, MUTED, colour, shortened, styled
from fedlama.run.directory import Run

MOST_NAMES = 16  # more layers are numbered


@dataclass(frozen=True)
class Crossing:
    """The decision at a run's latest full aggregation; the layers it walked, by ascending discrepancy."""

    index: int  # of the setting, for its colour
    label: str
    seed: int
    step: int
    base_interval: int
    long_interval: int
    names: list[str]
    delta: list[float]
    kept: list[float]  # 1 − λ
    lengthened: list[bool]

    @property
    def lengthened_share(self) -> float:
        """The share of the parameters that the lengthened layers hold."""
        sizes = [before - after for before, after in zip([1.0, *self.kept], self.kept, strict=False)]
        return sum(size for size, long in zip(sizes, self.lengthened, strict=True) if long)


def crossings(comparison: Comparison) -> list[Crossing]:
    """One for every setting that lengthens layers, from the first of its runs that measured all of them."""
    found = [
        next((crossing for run in setting.runs if (crossing := _crossing(index, setting, run))), None)
        for index, setting in enumerate(comparison.settings)
        if setting.adapts and setting.config["policy.rule"] != "accelerate"
    ]
    return [crossing for crossing in found if crossing]


def _crossing(index: int, setting: Setting, run: Run) -> Crossing | None:
    record = next((record for record in reversed(run.records) if _complete(record["discrepancy"])), None)
    sizes = [layer.size for layer in setting.layers if layer.size]
    if record is None or run.summary is None or len(sizes) != len(record["discrepancy"]):
        return None
    d, intervals = record["discrepancy"], _decision(setting, run, record["discrepancy"], sizes)
    adaptive, rule = [layer["adaptive"] for layer in run.summary["layers"]], setting.config["policy.rule"]
    walked = [layer for layer in range(len(d)) if adaptive[layer] or rule == "printed"]
    order = sorted(walked, key=lambda layer: d[layer])
    delta, kept = crossing_curves(d, sizes, adaptive, rule)
    base = setting.config["policy.base_interval"]
    return Crossing(
        index=index,
        label=setting.label,
        seed=run.seed,
        step=record["step"],
        base_interval=base,
        long_interval=base * setting.config["policy.increase_factor"],
        names=[setting.layers[layer].name for layer in order],
        delta=delta,
        kept=kept,
        lengthened=[intervals[layer] > base for layer in order],
    )


def _complete(discrepancy: Sequence[float | None]) -> bool:
    return any(discrepancy) and all(d is not None and math.isfinite(d) and d >= 0 for d in discrepancy)


def _decision(setting: Setting, run: Run, discrepancy: list[float], sizes: list[int]) -> list[int]:
    assert run.summary is not None
    return adjust_intervals(
        discrepancy,
        sizes,
        base_interval=setting.config["policy.base_interval"],
        increase_factor=setting.config["policy.increase_factor"],
        adaptive=[layer["adaptive"] for layer in run.summary["layers"]],
        rule=setting.config["policy.rule"],
    )


@styled
def crossing_figure(crossing: Crossing) -> Figure:
    """δ and 1 − λ over the layers; a filled dot is a layer that is lengthened."""
    named = len(crossing.names) <= MOST_NAMES
    figure = Figure(figsize=(5.0, 3.9 if named else 3.2), layout="constrained")
    axes = figure.subplots()
    places = list(range(1, len(crossing.names) + 1))
    axes.plot(places, crossing.kept, color=MUTED, linewidth=1.8)
    axes.plot(places, crossing.delta, color=colour(crossing.index), linewidth=1.8)
    _draw_dots(axes, places, crossing)
    _name_curves(axes, crossing)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.set_ylim(-0.03, 1.06)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_xlabel("layers, by ascending discrepancy")
    _name_layers(axes, places, crossing, named=named)
    return figure


def _draw_dots(axes: Axes, places: list[int], crossing: Crossing) -> None:
    ours, size = colour(crossing.index), 30 if len(places) <= MOST_NAMES else 12
    for long in (True, False):
        chosen = [i for i, lengthened in enumerate(crossing.lengthened) if lengthened is long]
        face = ours if long else "none"
        points = [places[i] for i in chosen], [crossing.delta[i] for i in chosen]
        axes.scatter(*points, size, facecolor=face, edgecolor=ours, zorder=3, clip_on=False)


def _name_curves(axes: Axes, crossing: Crossing) -> None:
    above: dict[str, Any] = {"textcoords": "offset points", "fontweight": "bold"}
    last = len(crossing.names)
    axes.annotate("δ", (last, crossing.delta[-1]), (9, -3), color=colour(crossing.index), **above)
    axes.annotate("1 − λ", (last, crossing.kept[-1]), (9, -3), color=MUTED, **above)


def _name_layers(axes: Axes, places: list[int], crossing: Crossing, *, named: bool) -> None:
    if not named:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return
    names = [shortened(name) for name in crossing.names]
    axes.set_xticks(places, names, rotation=38, ha="right", rotation_mode="anchor", fontsize=9, color=INK)
