"""What `fedlama diagnose` found, as one picture: the layers, the crossing and the theorem's terms."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator

from fedlama.diagnose import Diagnosis
from fedlama.report.pictures.style import (
    GRID,
    INK,
    MUTED,
    PALETTE,
    png,
    say_nothing,
    styled,
    titled,
)

SHORT_COLOUR, LONG_COLOUR = PALETTE[:2]
TERMS = ("optimisation", "noise", "drift", "heterogeneity")


def draw_diagnosis(found: Diagnosis, path: Path) -> Path:
    """Write the picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(_picture(found)))
    return path


@styled
def _picture(found: Diagnosis) -> Figure:
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    profile, crossing, terms = figure.subplots(1, 3, width_ratios=[1.5, 1, 1])
    _draw_profile(profile, found)
    _draw_crossing(crossing, found)
    _draw_terms(terms, found)
    return figure


def _draw_profile(axes: Axes, found: Diagnosis) -> None:
    titled(axes, "d_l of every layer, from input to output")
    groups = (
        (f"stays at τ' = {found.base_interval}", SHORT_COLOUR, False),
        ("made long by the first adjustment", LONG_COLOUR, True),
    )
    largest = max(layer.size for layer in found.layers)
    for _, colour, is_long in groups:
        places: list[int] = []
        heights: list[float] = []
        areas: list[float] = []
        for place, layer in enumerate(found.layers):
            if (
                layer.interval > found.base_interval
            ) == is_long and layer.discrepancy > 0:
                places.append(place)
                heights.append(layer.discrepancy)
                areas.append(12 + 240 * layer.size / largest)
        if places:
            axes.scatter(
                places, heights, s=areas, color=colour, alpha=0.75, linewidths=0
            )
    if any(layer.discrepancy > 0 for layer in found.layers):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(_plain_number)
    axes.set(
        xlabel="layer (area of a dot: parameters)", ylabel="d_l per parameter and step"
    )
    axes.grid(color=GRID)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [
        Line2D([], [], marker="o", linestyle="none", color=colour, label=label)
        for label, colour, _ in groups
    ]
    axes.legend(
        handles=handles,
        frameon=False,
        fontsize=9,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
    )


def _draw_crossing(axes: Axes, found: Diagnosis) -> None:
    count = sum(layer.interval > found.base_interval for layer in found.layers)
    titled(axes, f"the adjustment stops after {count}")
    delta, kept = found.crossing
    if not any(delta):
        say_nothing(axes, "all d_l are zero")
        return
    places = range(1, len(delta) + 1)
    axes.plot(
        places,
        delta,
        color=LONG_COLOUR,
        label="δ: share of the discrepancy",
    )
    axes.plot(
        places,
        kept,
        color=SHORT_COLOUR,
        label="1 − λ: parameters still short",
    )
    axes.axvline(count, color=MUTED, linestyle="dotted")
    axes.set(xlabel="layers made long, by ascending d_l", ylim=(0, 1.02))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color=GRID)
    _legend_below(axes)


def _draw_terms(axes: Axes, found: Diagnosis) -> None:
    titled(axes, "the theorem's terms")
    if found.theory is None:
        say_nothing(axes, "without L there are no terms")
        return
    places = range(len(TERMS))
    bars = (
        (
            f"at its limit, η = {found.theory.limit:.2g}",
            found.theory.at_limit,
            INK,
            -0.2,
        ),
        (
            f"formula at η = {found.effective_rate:g}",
            found.theory.at_configured,
            PALETTE[2],
            0.2,
        ),
    )
    for label, terms, colour, shift in bars:
        values = [getattr(terms, name) for name in TERMS]
        axes.barh(
            [place + shift for place in places],
            values,
            height=0.38,
            color=colour,
            label=label,
        )
    axes.set_yticks(list(places), TERMS)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(_plain_number)
    axes.xaxis.set_major_locator(LogLocator(numticks=5))
    axes.set_xlabel("squared gradient")
    axes.grid(color=GRID, axis="x")
    _legend_below(axes)


def _plain_number(value: float, _place: float = 0.0) -> str:
    """Names and labels are shown as they are, so powers of ten must not be written as formulas."""
    if value < 0.01 or value >= 10_000:
        return f"{value:.0e}"
    return f"{value:g}"


def _legend_below(axes: Axes) -> None:
    axes.legend(
        frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16)
    )
