"""What `fedlama diagnose` found, as one page of text and one picture."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlama.diagnose import Diagnosis
from fedlama.report.formats import human_bytes
from fedlama.report.style import GRID, INK, MUTED, PALETTE, png, say_nothing, styled, titled

SHORT_COLOUR, LONG_COLOUR = PALETTE[:2]
MOST_NAMED = 4  # long layers in a line
SCALING = {
    "optimisation": "1/(η · steps)",
    "noise": "η/m",
    "drift": "η²(φτ' − 1)",
    "heterogeneity": "η² φτ'(φτ' − 1)",
}


def diagnosis_text(found: Diagnosis) -> str:
    """One page for a terminal."""
    parts = [_constants(found), _theory(found), _layers(found), _policies(found)]
    for name, reason in found.omitted.items():
        parts.append(f"Left out: {name} ({reason}).")
    parts.append(found.recommendation)
    return "\n\n".join(parts)


def _constants(found: Diagnosis) -> str:
    constants = found.constants
    looked_at = f"{len(found.probed)} clients, a first cycle of {found.interval} steps"
    curvature = "not estimated"
    if constants.smoothness is not None:
        curvature = f"{constants.smoothness:.4g}"
    return "\n".join(
        [
            f"Estimates ({looked_at}; at the first weights and after the cycle):",
            f"  L   {curvature:<14} largest Hessian eigenvalue of a client",
            f"  σ²  {constants.gradient_variance:<14.4g} gradient noise, mean over clients (noisiest: "
            f"{constants.largest_variance:.4g})",
            f"  β²  {constants.dissimilarity:<14.4g} mean‖∇F_i‖² ≤ β²‖∇F‖² + κ²",
            f"  κ²  {constants.heterogeneity:<14.4g} differences between clients",
        ]
    )


def _theory(found: Diagnosis) -> str:
    theory = found.theory
    if theory is None:
        return f"Learning rate: {found.learning_rate:g} as configured; without L there is no limit to compare it with."
    ratio = found.learning_rate / theory.limit
    if ratio > 1:
        beside = f"{ratio:.3g} times the limit, so the theorem says nothing about this run"
    else:
        beside = f"{ratio:.3g} of the limit"
    lines = [
        f"Learning rate: {found.learning_rate:g} as configured; Theorem 5.3 allows up to {theory.limit:.3g} at "
        f"τ = φτ' = {found.interval}.",
        f"  That is {beside}. The theorem is a worst",
        "  case: typical learning rates exceed its limit, and training works all the same. What it tells",
        "  is which term grows with what:",
        f"  {'term':<15}{'at the limit':>14}{'formula at η':>14}   scales as",
    ]
    for name, scaling in SCALING.items():
        at_limit = getattr(theory.at_limit, name)
        configured = getattr(theory.at_configured, name)
        lines.append(f"  {name:<15}{at_limit:>14.3g}{configured:>14.3g}   {scaling}")
    rest = {name: getattr(theory.at_configured, name) for name in ("noise", "drift", "heterogeneity")}
    largest = max(rest, key=lambda name: rest[name])
    lines.append(
        f"  Of noise, drift and heterogeneity, {largest} is the largest at the configured rate (m = {found.clients})."
    )
    return "\n".join(lines)


def _layers(found: Diagnosis) -> str:
    total = sum(layer.size for layer in found.layers)
    long_layers = [layer for layer in found.layers if layer.interval > found.base_interval]
    share = sum(layer.size for layer in long_layers) / total
    by_size = sorted(long_layers, key=lambda layer: -layer.size)
    named = ", ".join(layer.name for layer in by_size[:MOST_NAMED])
    if len(by_size) > MOST_NAMED:
        named += ", …"
    smallest = min(layer.discrepancy for layer in found.layers)
    largest = max(layer.discrepancy for layer in found.layers)
    return "\n".join(
        [
            f"Layers: d_l from {smallest:.2e} to {largest:.2e}. The first adjustment would make {len(long_layers)} of "
            f"{len(found.layers)} long,",
            f"  {share:.1%} of the parameters ({named}).",
            f"  √d_l varies by {found.root_spread:.2f} of its mean (by size): at equal bytes no intervals have less "
            f"than {found.best_gain:.0%}",
            "  of a FedAvg's discrepancy, 1/(1+CV²).",
        ]
    )


def _policies(found: Diagnosis) -> str:
    lines = [
        f"What each would send in {found.iterations:,} steps, if the layers went on like this:",
        f"  {'policy':<18}{'per client':>12}{'cost':>9}{'discrepancy':>13}{'at equal bytes':>16}",
    ]
    for one in found.predictions:
        sent = human_bytes(one.uplink_bytes)
        lines.append(
            f"  {one.policy:<18}{sent:>12}{one.cost:>9.1%}{one.discrepancy:>12.2f}×{one.at_equal_bytes:>15.2f}×"
        )
    lines.append("  (discrepancy relative to the first line; then relative to a FedAvg that sends as much)")
    return "\n".join(lines)


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
    for label, colour, is_long in groups:
        places: list[int] = []
        heights: list[float] = []
        areas: list[float] = []
        for place, layer in enumerate(found.layers):
            if (layer.interval > found.base_interval) == is_long and layer.discrepancy > 0:
                places.append(place)
                heights.append(layer.discrepancy)
                areas.append(12 + 240 * layer.size / largest)
        if places:
            axes.scatter(places, heights, s=areas, color=colour, alpha=0.75, linewidths=0, label=label)
    if any(layer.discrepancy > 0 for layer in found.layers):
        axes.set_yscale("log")
    axes.set(xlabel="layer (area of a dot: parameters)", ylabel="d_l per parameter and step")
    axes.grid(color=GRID)
    legend = axes.legend(frameon=False, fontsize=9, loc="best")
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_sizes([40])  # type: ignore[attr-defined]


def _draw_crossing(axes: Axes, found: Diagnosis) -> None:
    titled(axes, "where the adjustment stops")
    delta, kept = found.crossing
    if not any(delta):
        say_nothing(axes, "all d_l are zero")
        return
    places = range(1, len(delta) + 1)
    axes.plot(places, delta, color=LONG_COLOUR, label="δ: share of the discrepancy")
    axes.plot(places, kept, color=SHORT_COLOUR, label="1 − λ: parameters still short")
    count = sum(layer.interval > found.base_interval for layer in found.layers)
    axes.axvline(count, color=MUTED, linestyle="dotted")
    axes.annotate(f"{count} long", (count, 0.97), ha="center", color=MUTED, backgroundcolor="white")
    axes.set(xlabel="adaptive layers made long, by ascending d_l", ylim=(0, 1.02))
    axes.grid(color=GRID)
    axes.legend(frameon=False, fontsize=9)


def _draw_terms(axes: Axes, found: Diagnosis) -> None:
    titled(axes, "the theorem's terms")
    if found.theory is None:
        say_nothing(axes, "without L there are no terms")
        return
    names = list(SCALING)
    places = range(len(names))
    bars = (
        (f"at its limit, η = {found.theory.limit:.2g}", found.theory.at_limit, INK, -0.2),
        (f"formula at η = {found.learning_rate:g}", found.theory.at_configured, PALETTE[2], 0.2),
    )
    for label, terms, colour, shift in bars:
        values = [getattr(terms, name) for name in names]
        axes.barh([place + shift for place in places], values, height=0.38, color=colour, label=label)
    axes.set_yticks(list(places), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("squared gradient")
    axes.grid(color=GRID, axis="x")
    axes.legend(frameon=False, fontsize=9)
