"""How far clients are apart when only coded differences of them are known.

The clients' spread around their mean is Σ w_i‖x_i − u‖² = Σ w_i‖Δ_i‖² − ‖Σ w_iΔ_i‖² for weights that add up to one.
The exact norms ‖Δ_i‖² travel, four bytes per layer. The norm of the mean has to be estimated from decoded differences
Δ̂_i, and there the errors of the code would count as if the clients had moved:

    ‖Σ w_iΔ̂_i‖² = Σ_{i≠j} w_iw_j⟨Δ̂_i, Δ̂_j⟩ + Σ w_i²‖Δ̂_i‖².

The errors of different clients are independent, so the first sum is right on average (for an unbiased code), and in the
second each ‖Δ̂_i‖² can be replaced by the exact ‖Δ_i‖².

**Codes that shrink** deliver c·Δ_i on average (c = `kept`), so the first sum is divided by c². **Error feedback**
codes Δ_i and what earlier rounds left out, so that earlier updates add to the first sum; it is divided by an estimate
of how much (`measured_echo`). That is exact on average if the updates of a client in different rounds are
uncorrelated. If they are correlated, the spread comes out too small, by some per cent where clients share half of
their direction. N is kept between 0 and Σ w_i‖Δ_i‖², where the true value lies. **`TopK` and `LowRank`** err alike on
all clients; see `coherent_spread`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fedlama.compress.codec import Codec

# Rounds after which a residual that is never dropped has reached its size
STATIONARY = 64


def estimated_spread(
    codec: Codec,
    turn: tuple[int, int],
    *,
    gain: float,
    weights: Sequence[float],
    exact_sq: Sequence[float],
    decoded_sq: Sequence[float],
    kept: float | None,
    mean_sq: float,
) -> float:
    """Σ w_i‖x_i − u‖² of one layer as it would be without the code.

    Arguments:
        codec: What coded the layer.
        turn: Which of how many synchronisations of the layer in the window.
        gain: By what the server has multiplied what it received of the layer.
        weights: Of the clients; they add up to one.
        exact_sq: ‖Δ_i‖² as they travelled.
        decoded_sq: ‖Δ̂_i‖² of what was decoded.
        kept: Which part of a difference the code keeps on average; None where that depends on the numbers.
        mean_sq: ‖Σ w_iΔ̂_i‖².
    """
    if kept is None:
        return coherent_spread(weights, exact_sq, decoded_sq, mean_sq)
    echo = 1.0
    if codec.slots:
        sent = _weighted(weights, exact_sq)
        arrived = _weighted(weights, decoded_sq) / gain**2
        earlier = _earlier_distortions(codec, kept, *turn)
        echo = measured_echo(kept, earlier, sent, arrived)
    spread, _ = corrected_spread(
        weights,
        exact_sq,
        decoded_sq,
        mean_sq,
        kept=kept * gain,
        echo=echo,
    )
    return spread


def _weighted(weights: Sequence[float], values: Sequence[float]) -> float:
    pairs = zip(weights, values, strict=True)
    return math.fsum(weight * value for weight, value in pairs)


def mean_kept(
    weights: Sequence[float],
    kept: Sequence[Mapping[int, float | None]],
    layers: Iterable[int],
) -> dict[int, float | None]:
    """Which part of each layer's difference the code keeps, over all clients; None if that is unknown of one.

    Arguments:
        weights: Of the clients; they add up to one.
        kept: The part of each layer, per client.
        layers: Which layers.
    """
    return {
        layer: _mean_kept(weights, [of_client[layer] for of_client in kept])
        for layer in layers
    }


def _mean_kept(weights: Sequence[float], kept: Sequence[float | None]) -> float | None:
    total = 0.0
    for weight, share in zip(weights, kept, strict=True):
        if share is None:
            return None
        total += weight * share
    return total


def _earlier_distortions(
    codec: Codec, kept: float, round_in_window: int, rounds_per_window: int
) -> list[float]:
    """D of the rounds that the residual has seen, as planned."""
    if codec.slots[0].lifetime == "run":
        return [1.0 - kept] * STATIONARY
    result: list[float] = []
    for earlier in range(round_in_window):
        rate, _ = codec.for_round(earlier, rounds_per_window)
        planned = None
        if rate is not None:
            planned = codec.kept(rate)
        # Without a profile all rounds are like this one
        if planned is None:
            planned = kept
        result.append(1.0 - planned)
    return result


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

    Arguments:
        weights: Of the clients; they add up to one.
        exact_sq: ‖Δ_i‖² as they travelled.
        decoded_sq: ‖Δ̂_i‖² of what was decoded.
        mean_sq: ‖Σ w_iΔ̂_i‖².
        kept: ⟨Δ̂_i, Δ_i⟩/‖Δ_i‖² on average, a gain included: 1 for unbiased codes.
        echo: By how much error feedback lets earlier rounds add to the inner products of two clients.
    """
    own_decoded = 0.0
    own_exact = 0.0
    total = 0.0
    for weight, exact, decoded in zip(weights, exact_sq, decoded_sq, strict=True):
        square = weight**2
        own_decoded += square * decoded
        own_exact += square * exact
        total += weight * exact
    # Σ_{i≠j} w_iw_j⟨Δ̂_i, Δ̂_j⟩, and from it the same sum over the exact differences
    between = mean_sq - own_decoded
    if kept > 0:
        between /= kept**2 * echo
    else:
        between = 0.0
    # An estimate may miss the range that the true value lies in
    estimate = between + own_exact
    mean = min(max(estimate, 0.0), total)
    return total - mean, mean


def measured_echo(
    kept: float, earlier: Sequence[float], sent: float, arrived: float
) -> float:
    """By how much the updates of earlier rounds add to the inner products of two clients under error feedback.

    What is coded, x_k = Δ_k + e, consists of the update, of shrunken earlier ones, and of the errors of earlier
    codings, which are independent between clients. Its energy is known, because a code with the least-squares scale
    delivers 1 − D of it. Of the energy in round j, D_j(1 − D_j) becomes error, and what is there fades by D_j² per
    round. The rest of the energy, divided by that of this round's updates, is the echo.

    `kept` is 1 − D of this round, `earlier` D_j of the window's rounds before it. `sent` is Σ w_i‖Δ_i‖² and `arrived`
    Σ w_i‖Δ̂_i‖² without a gain.
    """
    if sent <= 0 or arrived <= 0 or kept <= 0:
        return 1.0
    # In units of an update's energy, if updates were uncorrelated: the energy grows like m ← 1 + D·m. Only the present
    # energy was measured; it tells the unit.
    energy = 1.0
    errors = 0.0
    for distortion in earlier:
        fading = distortion**2 * errors
        added = distortion * (1.0 - distortion) * energy
        errors = fading + added
        energy = 1.0 + distortion * energy
    measured = arrived / kept
    of_updates = measured * (1.0 - errors / energy)
    return max(of_updates / sent, 1.0)


def coherent_spread(
    weights: Sequence[float],
    exact_sq: Sequence[float],
    decoded_sq: Sequence[float],
    mean_sq: float,
) -> float:
    """The same for codes whose errors are not independent between clients (`TopK`, `LowRank`): an approximation.

    The clients' agreement is taken from what was decoded, ‖Σ w_iΔ̂_i‖²/Σ w_i‖Δ̂_i‖², and their size from the exact norms.
    """
    total = 0.0
    arrived = 0.0
    for weight, exact, decoded in zip(weights, exact_sq, decoded_sq, strict=True):
        total += weight * exact
        arrived += weight * decoded
    if arrived <= 0:
        return total
    agreement = mean_sq / arrived
    # The mean is never longer than what it is taken of, but for rounding
    apart = min(max(1.0 - agreement, 0.0), 1.0)
    return total * apart
