"""One sentence on what to do."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.diagnose.layers import Prediction

FACTORS = (2, 4, 8)
# Of a FedAvg's discrepancy at equal bytes: above it, layer-wise intervals gain next to nothing
WORTH_WHILE = 0.95
TOLERABLE = 2.0  # times the discrepancy of FedAvg(τ')


def recommend(
    predictions: Sequence[Prediction], root_spread: float, base_interval: int
) -> str:
    """The largest factor whose discrepancy is tolerable, if layer-wise intervals gain at all.

    Arguments:
        predictions: Of FedAvg first, then of FedLAMA with each of the `FACTORS`.
        root_spread: The coefficient of variation of √d_l, weighted by size.
        base_interval: τ'.
    """
    candidates = list(zip(FACTORS, predictions[1:], strict=False))
    gain = min(prediction.at_equal_bytes for _, prediction in candidates)
    if gain > WORTH_WHILE:
        best = 1 - 1 / (1 + root_spread**2)
        return (
            f"Intervals of their own gain little here (no intervals have more than {best:.0%} less discrepancy than a "
            f"FedAvg of equal bytes): use FedAvg with a longer interval than {base_interval}, or a codec, to send less."
        )

    # The smallest factor stands, tolerable or not: layer-wise intervals do gain here.
    factor, chosen = candidates[0]
    for other_factor, other in candidates[1:]:
        if other.discrepancy <= TOLERABLE:
            factor = other_factor
            chosen = other
    less = 1 - chosen.at_equal_bytes
    return (
        f"Use FedLAMA({base_interval}, {factor}): it would send {chosen.cost:.0%} of FedAvg({base_interval})'s "
        f"parameters, with {chosen.discrepancy:.2f} times its discrepancy once intervals are settled, which is "
        f"{less:.0%} less than a FedAvg of equal bytes has; a code such as frugal's saves more."
    )
