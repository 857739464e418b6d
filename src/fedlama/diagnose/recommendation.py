"""What to do, in one or two sentences."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.diagnose.layers import Prediction

FACTORS = (2, 4, 8)
# Of a FedAvg's discrepancy at equal bytes: above it, layer-wise intervals gain next to nothing
WORTH_WHILE = 0.95
TOLERABLE = 2.0  # times the discrepancy of FedAvg(τ')


def recommend(
    predictions: Sequence[Prediction],
    root_spread: float,
    base_interval: int,
    coded: Sequence[str] = (),
) -> str:
    """The code that sends least, as bits save more than intervals; then the best intervals without one.

    Arguments:
        predictions: Of FedAvg first, then of FedLAMA with each of the `FACTORS`.
        root_spread: The coefficient of variation of √d_l, weighted by size.
        base_interval: τ'.
        coded: The names of predictions with a code.
    """
    by_intervals = _by_intervals(predictions, root_spread, base_interval)
    with_codes = [one for one in predictions if one.policy in coded]
    if not with_codes:
        first_letter = by_intervals[0].upper()
        return first_letter + by_intervals[1:]

    fedavg = predictions[0]
    shortest = min(with_codes, key=lambda one: one.uplink_bytes)
    by_code = _by_code(shortest, fedavg)
    return f"{by_code} Without a code: {by_intervals}"


def _by_code(coded: Prediction, fedavg: Prediction) -> str:
    share = coded.uplink_bytes / fedavg.uplink_bytes
    return (
        f"Bits save most: {coded.policy} would send {share:.2%} of {fedavg.policy}'s uplink, for which its code adds "
        f"noise."
    )


def _by_intervals(
    predictions: Sequence[Prediction], root_spread: float, base_interval: int
) -> str:
    """The largest factor whose discrepancy is tolerable, if layer-wise intervals gain at all."""
    candidates = list(zip(FACTORS, predictions[1:], strict=False))
    gain = min(prediction.at_equal_bytes for _, prediction in candidates)
    if gain > WORTH_WHILE:
        best = 1 - 1 / (1 + root_spread**2)
        return (
            f"intervals of their own gain little here (no intervals have more than {best:.0%} less discrepancy than a "
            f"FedAvg of equal bytes): use FedAvg with a longer interval than {base_interval} to send less."
        )

    # The smallest factor stands, tolerable or not: layer-wise intervals do gain here.
    factor, chosen = candidates[0]
    for other_factor, other in candidates[1:]:
        if other.discrepancy <= TOLERABLE:
            factor = other_factor
            chosen = other
    less = 1 - chosen.at_equal_bytes
    return (
        f"use FedLAMA({base_interval}, {factor}): it would send {chosen.cost:.0%} of FedAvg({base_interval})'s "
        f"parameters, with {chosen.discrepancy:.2f} times its discrepancy once intervals are settled, which is "
        f"{less:.0%} less than a FedAvg of equal bytes has."
    )
