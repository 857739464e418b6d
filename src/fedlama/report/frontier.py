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

from fedlama.report.comparison import Comparison, Setting
from fedlama.report.formats import gap_text, joined, percent


@dataclass(frozen=True)
class Place:
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

    place: Place
    expected: float
    deviation: float | None
    between: tuple[str, ...]

    @property
    def gap(self) -> float:
        """How far the setting lies above the line."""
        return self.place.mean - self.expected

    @property
    def within_spread(self) -> bool | None:
        """Whether seeds differ as much among themselves; None where one seed has no spread."""
        if self.place.deviation is None or self.deviation is None:
            return None
        return abs(self.gap) <= math.hypot(self.place.deviation, self.deviation)


def places(comparison: Comparison) -> list[Place]:
    """Every finished setting that has a score and sent something."""
    found = [_place(index, setting, comparison) for index, setting in enumerate(comparison.settings)]
    return [place for place in found if place]


def _place(index: int, setting: Setting, comparison: Comparison) -> Place | None:
    score, total = comparison.score(setting), setting.uplink_bytes + setting.downlink_bytes
    if score is None or not setting.finished or total <= 0:
        return None
    return Place(index, setting.label, total, score.mean, score.deviation, setting.adapts)


def fedavg_line(found: Sequence[Place], comparison: Comparison) -> list[Place]:
    """FedAvg's settings by ascending bytes; of those with the same bytes, the best."""
    sign = 1 if comparison.metric == "accuracy" else -1
    best: dict[float, Place] = {}
    for place in sorted((one for one in found if not one.adapts), key=lambda one: sign * one.mean):
        best[place.total_bytes] = place
    return [best[total] for total in sorted(best)]


def standing(place: Place, line: Sequence[Place]) -> Standing | None:
    """A setting against the line at its bytes; None beyond the line's ends."""
    for one in line:
        if one.total_bytes == place.total_bytes:
            return Standing(place, one.mean, one.deviation, (one.label,))
    for low, high in pairwise(line):
        if low.total_bytes < place.total_bytes < high.total_bytes:
            return _between(place, low, high)
    return None


def _between(place: Place, low: Place, high: Place) -> Standing:
    share = math.log(place.total_bytes / low.total_bytes) / math.log(high.total_bytes / low.total_bytes)
    expected = low.mean + share * (high.mean - low.mean)
    deviation = None
    if low.deviation is not None and high.deviation is not None:
        deviation = math.hypot((1 - share) * low.deviation, share * high.deviation)
    return Standing(place, expected, deviation, (low.label, high.label))


def equal_bytes(comparison: Comparison, only: str | None = None) -> list[str]:
    """A sentence for every setting that adapts (or one of them): better or worse than FedAvg at its number of bytes."""
    found = places(comparison)
    line = fedavg_line(found, comparison)
    asked = [place for place in found if place.adapts and only in (None, place.label)]
    return [_sentence(place, line, comparison) for place in asked] if line else []


def _sentence(place: Place, line: Sequence[Place], comparison: Comparison) -> str:
    stands = standing(place, line)
    if stands is None:
        few = place.total_bytes < line[0].total_bytes
        return (
            f"{place.label} moved {'fewer' if few else 'more'} bytes than any FedAvg setting here, "
            f"so there is no FedAvg at equal bytes to compare it with."
        )
    whose = stands.between[0] if len(stands.between) == 1 else f"a FedAvg between {joined(list(stands.between))}"
    score = percent(stands.expected, 1) if comparison.metric == "accuracy" else f"{stands.expected:.3f}"
    size, direction = gap_text(stands.gap, comparison.metric)
    reached = "reached" if comparison.metric == "accuracy" else "had a loss"
    said = f"{reached} {size} {direction} than" if size else "was level with"
    return f"At equal bytes {place.label} {said} {whose} ({score}){_judgement(stands)}."


def _judgement(stands: Standing) -> str:
    if stands.within_spread is None:
        return "; with one seed there is no spread to judge that by"
    return ", within the spread over seeds" if stands.within_spread else ", beyond the spread over seeds"
