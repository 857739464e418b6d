"""What `fedlama diagnose` found, as one page of text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from fedlama.base import printable
from fedlama.diagnose import Diagnosis, LayerProfile
from fedlama.diagnose.findings import GRADIENT_VARIANCE
from fedlama.report.words.formats import human_bytes, joined

MAX_NAMED = 4  # long layers in a line
PAGE_WIDTH = 100
MAX_POLICY = 60  # characters of the user's own
SCALING = {
    "optimisation": "1/(η · steps)",
    "noise": "η/m",
    "drift": "η²(φτ' − 1)",
    "heterogeneity": "η² φτ'(φτ' − 1)",
}


def diagnosis_text(found: Diagnosis) -> str:
    """One page for a terminal."""
    parts = [
        _constants(found),
        _theory(found),
        _layers(found),
        _policies(found),
    ]
    for name, reason in found.omitted.items():
        sentence = f"Left out: {name} ({reason})."
        parts.append(fill(sentence, PAGE_WIDTH))

    recommendation = fill(found.recommendation, PAGE_WIDTH)
    parts.append(recommendation)
    return "\n\n".join(parts)


def _constants(found: Diagnosis) -> str:
    constants = found.constants
    looked_at = (
        f"{len(found.probed)} clients, {found.cycles} cycles of {found.interval} steps"
    )
    curvature = "not estimated"
    if constants.smoothness is not None:
        curvature = f"{constants.smoothness:.4g}"
    noise = f"{constants.gradient_variance:<14.4g} gradient noise, mean over clients (noisiest: "
    noise += f"{constants.largest_variance:.4g})"
    if GRADIENT_VARIANCE in found.omitted:
        noise = "not estimated; noise and drift below are without it"
    return "\n".join(
        [
            f"Estimates ({looked_at}; at the first weights and after them):",
            f"  L   {curvature:<14} largest Hessian eigenvalue of a client",
            f"  σ²  {noise}",
            f"  β²  {constants.dissimilarity:<14.4g} mean‖∇F_i‖² ≤ β²‖∇F‖² + κ²",
            f"  κ²  {constants.heterogeneity:<14.4g} differences between clients",
        ]
    )


def _theory(found: Diagnosis) -> str:
    theory = found.theory
    if theory is None:
        return f"Learning rate: {found.learning_rate:g} as configured; without L there is no limit to compare it with."
    ratio = found.effective_rate / theory.limit
    configured = f"{found.learning_rate:g} as configured"
    if found.momentum:
        configured += (
            f" (with momentum {found.momentum:g} it acts like {found.effective_rate:g})"
        )
    beside = f"{ratio:.3g} of that"
    if ratio > 1:
        beside = f"{ratio:.3g} times as much, about which it says nothing"
    lines = [
        f"Learning rate: {configured}.",
        f"  Theorem 5.3 allows {theory.limit:.3g} at τ = φτ' = {found.interval}. This is {beside}.",
        "  The theorem is a worst case: typical learning rates exceed its limit, and training works all",
        "  the same. What it shows is which term grows with what:",
        f"  {'term':<15}{'at the limit':>14}{'formula at η':>14}   scales as",
    ]
    for name, scaling in SCALING.items():
        at_limit = getattr(theory.at_limit, name)
        at_rate = getattr(theory.at_configured, name)
        lines.append(f"  {name:<15}{at_limit:>14.3g}{at_rate:>14.3g}   {scaling}")
    rest = {
        name: getattr(theory.at_configured, name)
        for name in ("noise", "drift", "heterogeneity")
    }
    largest = max(rest, key=lambda name: rest[name])
    lines.append(
        f"  Of noise, drift and heterogeneity, {largest} is the largest at this rate (m = {found.clients})."
    )
    return "\n".join(lines)


def _layers(found: Diagnosis) -> str:
    smallest = min(layer.discrepancy for layer in found.layers)
    largest = max(layer.discrepancy for layer in found.layers)
    count, share, names = _long_layers(found.layers, found.base_interval)
    lines = [
        f"Layers: d_l from {smallest:.1e} to {largest:.1e}. The first adjustment would make {count} of "
        f"{len(found.layers)} long, {share:.1%}",
        fill(
            f"of the parameters ({names}).",
            PAGE_WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
        ),
    ]
    if found.cycles > 1:
        count, share, _ = _long_layers(found.later_layers, found.base_interval)
        lines.append(
            f"  After {found.cycles} cycles it would make {count} long, {share:.1%} of the parameters."
        )
    lines.append(
        f"  √d_l varies by {found.root_spread:.2f} of its mean (by size). So at equal bytes, no intervals have less"
    )
    lines.append(f"  than {found.best_gain:.0%} of a FedAvg's discrepancy: 1/(1+CV²).")
    return "\n".join(lines)


def _long_layers(
    layers: Sequence[LayerProfile], base_interval: int
) -> tuple[int, float, str]:
    """How many are long, their share of the parameters, and the names of the largest."""
    long_ones: list[LayerProfile] = []
    parameters = 0
    in_long_ones = 0
    for layer in layers:
        parameters += layer.size
        if layer.interval > base_interval:
            long_ones.append(layer)
            in_long_ones += layer.size

    share = in_long_ones / parameters
    largest_first = sorted(long_ones, key=lambda layer: -layer.size)
    names = [layer.name for layer in largest_first[:MAX_NAMED]]
    if len(long_ones) > MAX_NAMED:
        names.append("…")
    return len(long_ones), share, ", ".join(names)


def _policies(found: Diagnosis) -> str:
    names = [printable(one.policy, MAX_POLICY) for one in found.predictions]
    width = max(26, *(len(name) + 1 for name in names))
    lines = [
        f"What each would send in {found.iterations:,} steps if layers went on as in the last cycle:",
        f"  {'policy':<{width}}{'per client':>12}{'cost':>9}{'discrepancy':>13}{'at equal bytes':>16}",
    ]
    for name, one in zip(names, found.predictions, strict=True):
        sent = human_bytes(one.uplink_bytes)
        lines.append(
            f"  {name:<{width}}{sent:>12}{one.cost:>9.1%}{one.discrepancy:>12.2f}×{one.at_equal_bytes:>15.2f}×"
        )
    lines.append(
        "  (discrepancy relative to the first line, then relative to a FedAvg that averages as many parameters;"
    )
    cost = f"  cost counts parameters averaged, as a share of FedAvg({found.base_interval})'s"
    if not found.coded:
        lines.append(f"{cost})")
        return "\n".join(lines)

    lines.append(f"{cost};")
    names = joined([printable(name, MAX_POLICY) for name in found.coded])
    lines.append(f"  with a code, which costs noise instead of drift: {names})")
    return "\n".join(lines)
