"""At the same number of bytes, which is better? FedAvg's settings as a line of score over bytes, and who lies above it.

Bytes are those up and down of all clients. Between two FedAvg settings the score is taken to change evenly with the
logarithm of the bytes, as it does on the drawing's axis: a straight line over the bytes themselves would flatter
whoever is compared with it, because scores rise ever more slowly with bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison


@dataclass(frozen=True)
class FrontierPoint:
    """A setting on the drawing."""

    index: int  # of the setting, for its colour
    label: str
    total_bytes: float
    mean: float
    deviation: float | None
    adapts: bool


@dataclass(frozen=True)
class Standing:
    """A setting against FedAvg at its bytes: the score that FedAvg's line has there, and the settings beside it."""

    point: FrontierPoint
    expected: float
    deviation: float | None
    between: tuple[str, ...]

    @property
    def gap(self) -> float:
        """How far the setting lies above the line."""
        return self.point.mean - self.expected

    @property
    def within_spread(self) -> bool | None:
        """Whether seeds differ as much among themselves; None where one seed has no spread."""
        own = self.point.deviation
        if own is None or self.deviation is None:
            return None
        # The deviation of a difference of two independent numbers
        spread = math.hypot(own, self.deviation)
        return abs(self.gap) <= spread


def frontier_points(comparison: RunComparison) -> list[FrontierPoint]:
    """Every finished setting that has a score and sent something."""
    found: list[FrontierPoint] = []
    settings = comparison.settings
    for index, setting in enumerate(settings):
        point = _point(index, setting, comparison)
        if point is not None:
            found.append(point)
    return found


def _point(
    index: int, setting: ComparedSetting, comparison: RunComparison
) -> FrontierPoint | None:
    score = comparison.score(setting)
    total = setting.uplink_bytes + setting.downlink_bytes
    if score is None or not setting.finished or total <= 0:
        return None

    return FrontierPoint(
        index=index,
        label=setting.label,
        total_bytes=total,
        mean=score.mean,
        deviation=score.deviation,
        adapts=setting.adapts,
    )


def fedavg_line(
    found: Sequence[FrontierPoint], comparison: RunComparison
) -> list[FrontierPoint]:
    """FedAvg's settings by ascending bytes; of those with the same bytes, the best."""
    best: dict[float, FrontierPoint] = {}
    for point in found:
        if point.adapts:
            continue
        other = best.get(point.total_bytes)
        if (
            other is None
            or comparison.sign * point.mean >= comparison.sign * other.mean
        ):
            best[point.total_bytes] = point
    return [best[total] for total in sorted(best)]


def standing(point: FrontierPoint, line: Sequence[FrontierPoint]) -> Standing | None:
    """A setting against the line at its bytes; None beyond the line's ends.

    Arguments:
        point: the setting.
        line: FedAvg's settings by ascending bytes.
    """
    for one in line:
        if one.total_bytes == point.total_bytes:
            return Standing(point, one.mean, one.deviation, (one.label,))

    for low, high in pairwise(line):
        if low.total_bytes < point.total_bytes < high.total_bytes:
            return _between(point, low, high)
    return None


def _between(point: FrontierPoint, low: FrontierPoint, high: FrontierPoint) -> Standing:
    """Read off the line between two settings, on the logarithmic axis."""
    whole = math.log(high.total_bytes / low.total_bytes)
    part = math.log(point.total_bytes / low.total_bytes)
    share = part / whole

    rise = high.mean - low.mean
    expected = low.mean + share * rise

    # The two ends are of independent runs, so their shares of the spread add up in squares.
    deviation = None
    if low.deviation is not None and high.deviation is not None:
        from_low = (1 - share) * low.deviation
        from_high = share * high.deviation
        deviation = math.hypot(from_low, from_high)
    return Standing(
        point=point,
        expected=expected,
        deviation=deviation,
        between=(low.label, high.label),
    )
