"""How far clients are apart when only coded differences of them are known.

The clients' spread around their mean is Σ w_i‖x_i − u‖² = Σ w_i‖Δ_i‖² − ‖Σ w_iΔ_i‖² for weights that add up to one. The
exact norms ‖Δ_i‖² travel, four bytes per layer. The norm of the mean has to be estimated from decoded differences Δ̂_i, and
there the errors of the code would count as if the clients had moved:

    ‖Σ w_iΔ̂_i‖² = Σ_{i≠j} w_iw_j⟨Δ̂_i, Δ̂_j⟩ + Σ w_i²‖Δ̂_i‖².

The errors of different clients are independent, so the first sum is right on average (for an unbiased code), and in the
second each ‖Δ̂_i‖² can be replaced by the exact ‖Δ_i‖².

**Codes that shrink** deliver c·Δ_i on average (c = `kept`), so the first sum is divided by c². **Error feedback** codes Δ_i
and what earlier rounds left out. If the updates of different rounds are uncorrelated, the first sum then holds the
earlier rounds' part as well, and is divided by G = 1 + D² + D⁴ + … (`echo`). Updates of a window that point the same way
make N too large by up to (1 + D + D² + …)²/G, and the spread too small; all layers at the same rate alike, so that the order
of layers, on which a policy decides, stays. Beyond that, N is kept between 0 and Σ w_i‖Δ_i‖², where the true value lies.
"""

from __future__ import annotations

from collections.abc import Sequence


def corrected_spread(
    weights: Sequence[float],
    exact_sq: Sequence[float],
    decoded_sq: Sequence[float],
    mean_sq: float,
    *,
    kept: float = 1.0,
    echo: float = 1.0,
) -> tuple[float, float]:
    """Σ w_i‖x_i − u‖² of one layer under a lossy code, and the estimate N of ‖Σ w_iΔ_i‖² that it rests on.

    `weights` of the clients add up to one. `exact_sq` are ‖Δ_i‖² as they travelled, `decoded_sq` are ‖Δ̂_i‖² of what was
    decoded, `mean_sq` is ‖Σ w_iΔ̂_i‖². `kept` is ⟨Δ̂_i, Δ_i⟩/‖Δ_i‖² on average, a gain included: 1 for unbiased
    codes. `echo` is by how much error feedback lets earlier rounds add to the inner products of two clients.
    """
    own_decoded = 0.0
    own_exact = 0.0
    total = 0.0
    for weight, exact, decoded in zip(weights, exact_sq, decoded_sq, strict=True):
        own_decoded += weight**2 * decoded
        own_exact += weight**2 * exact
        total += weight * exact
    between = mean_sq - own_decoded
    if kept > 0:
        between /= kept**2 * echo
    else:
        between = 0.0
    mean = min(max(between + own_exact, 0.0), total)
    return total - mean, mean


def echo_of(distortions: Sequence[float]) -> float:
    """G in the round after rounds with these D: 1 + D² + D⁴ + … where they are equal."""
    total = 1.0
    share = 1.0
    for distortion in reversed(distortions):
        share *= distortion**2
        total += share
    return total
