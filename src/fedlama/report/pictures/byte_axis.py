"""The axis of bytes under learning curves: its unit, or its ends where it is logarithmic."""

from __future__ import annotations

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.words.formats import BYTE_UNITS

LOGARITHMIC_FROM = 10  # times the bytes of the setting with the fewest


def logarithmic_range(comparison: RunComparison) -> tuple[float, float] | None:
    """The ends of a logarithmic axis of bytes, where settings differ so much that an even one would hide the small."""
    firsts: list[float] = []
    lasts: list[float] = []
    for setting in comparison.settings:
        sent = setting.curve.uplink_bytes
        # Zero has no place on a logarithmic axis.
        if sent and sent[0] > 0:
            firsts.append(sent[0])
            lasts.append(sent[-1])
    if not lasts:
        return None
    most = max(lasts)
    if most < LOGARITHMIC_FROM * min(lasts):
        return None
    # A little room beside the first and the last point
    return min(firsts) / 1.2, most * 1.2


def byte_unit(comparison: RunComparison) -> tuple[str, float]:
    """The unit in which the longest curve has a readable length, and its size in bytes."""
    largest = 0.0
    for setting in comparison.settings:
        largest = max([largest, *setting.curve.uplink_bytes])
    for unit, size in BYTE_UNITS:
        if largest >= size:
            return unit, size
    return "B", 1.0
