"""What to do, in one or two sentences."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.diagnose.layers import Prediction

FACTORS = (2, 4, 8)
# Of a FedAvg's discrepancy at equal bytes: above it, layer-wise intervals gain next to nothing
WORTH_WHILE = 0.95
TOLERABLE = 2.0  # times the discrepancy of FedAvg(τ')
# How much √d_l varies in the first cycles where averaging some layers less often may be better than coarser messages:
# by 4.1 and 4.9 of its mean in ResNet20, and by 0.5 and 1.1 in small networks, where it was worse (docs/choosing.md).
VARIES = 2.0


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

    by_code = _by_code(with_codes, predictions[0], root_spread)
    return f"{by_code} Without a code: {by_intervals}"


def _by_code(
    with_codes: Sequence[Prediction], fedavg: Prediction, root_spread: float
) -> str:
    """The code that sends least, of those that average every layer every time unless √d_l varies enough."""
    sends_least = _shortest(with_codes)
    chosen = sends_least
    every_layer = [one for one in with_codes if one.cost >= fedavg.cost]
    if every_layer and root_spread < VARIES:
        chosen = _shortest(every_layer)

    share = chosen.uplink_bytes / fedavg.uplink_bytes
    said = (
        f"Bits save most: {chosen.policy} would send {share:.2%} of {fedavg.policy}'s uplink, for which its code adds "
        f"noise."
    )
    if chosen is not sends_least:
        said += (
            f" {sends_least.policy} would send less, but √d_l varies too little here (by {root_spread:.2f} of its "
            f"mean) for averaging some layers less often beside a code."
        )
    return said


def _shortest(predictions: Sequence[Prediction]) -> Prediction:
    return min(predictions, key=lambda one: one.uplink_bytes)


def _by_intervals(
    predictions: Sequence[Prediction], root_spread: float, base_interval: int
) -> str:
    """The largest factor that gains and whose discrepancy is tolerable, if layer-wise intervals gain at all."""
    fedavg = predictions[0]
    candidates = list(zip(FACTORS, predictions[1:], strict=False))
    settled = [
        (factor, one) for factor, one in candidates if one.at_equal_bytes <= WORTH_WHILE
    ]
    gaining = [(factor, one) for factor, one in settled if one.cost < fedavg.cost]
    if settled and not gaining:
        # A run of a cycle or less sends as much as FedAvg.
        return (
            f"intervals of their own would gain in a longer run only, as they are first chosen after a cycle: use "
            f"FedAvg with a longer interval than {base_interval} to send less."
        )
    if not gaining:
        best = 1 - 1 / (1 + root_spread**2)
        return (
            f"intervals of their own gain little here (no intervals have more than {best:.0%} less discrepancy than a "
            f"FedAvg of equal bytes): use FedAvg with a longer interval than {base_interval} to send less."
        )

    # The smallest of them stands, tolerable or not: layer-wise intervals do gain here.
    factor, chosen = gaining[0]
    for other_factor, other in gaining[1:]:
        if other.discrepancy <= TOLERABLE:
            factor = other_factor
            chosen = other
    less = 1 - chosen.at_equal_bytes
    return (
        f"use FedLAMA({base_interval}, {factor}): it would send {chosen.cost:.0%} of FedAvg({base_interval})'s "
        f"parameters, with {chosen.discrepancy:.2f} times its discrepancy once intervals are settled, which is "
        f"{less:.0%} less than a FedAvg of equal bytes has."
    )
