"""Numbers over seeds: means, how far seeds lie apart, and curves at the steps that all of them have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedlama.report.numbers.outcomes import Point


@dataclass(frozen=True)
class Spread:
    """A number over seeds: its mean and sample standard deviation, which one seed does not have."""

    mean: float
    deviation: float | None
    values: tuple[float, ...]  # in the order of the setting's seeds


@dataclass(frozen=True)
class Curve:
    """A score over a run, at the steps that all seeds have: mean, smallest and largest."""

    steps: list[int]
    uplink_bytes: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def spread_of(values: Sequence[float | None]) -> Spread | None:
    """None unless every seed has the number: a mean over those that happen to have one says nothing."""
    numbers: list[float] = []
    for value in values:
        if value is None:
            return None
        numbers.append(value)
    if not numbers:
        return None

    deviation = None
    if len(numbers) > 1:
        deviation = stdev(numbers)
    return Spread(
        mean=fmean(numbers),
        deviation=deviation,
        values=tuple(numbers),
    )


def mean_of(values: Sequence[float | None]) -> float | None:
    """None unless every seed has the number."""
    spread = spread_of(values)
    if spread is None:
        return None
    return spread.mean


def curve_of(runs: Sequence[Sequence[Point]], metric: str) -> Curve:
    """The score of some seeds as one curve.

    Arguments:
        runs: The points of every seed.
        metric: Which of a point's numbers is drawn.
    """
    scored: list[dict[int, Point]] = []
    for points in runs:
        scored.append(_by_step(points, metric))

    common = set(scored[0])
    for points in scored[1:]:
        common &= set(points)

    curve = Curve(steps=sorted(common), uplink_bytes=[], mean=[], low=[], high=[])
    for step in curve.steps:
        sent: list[float] = []
        scores: list[float] = []
        for points in scored:
            score = points[step].value(metric)
            assert score is not None
            scores.append(score)
            sent.append(points[step].uplink_bytes)

        curve.uplink_bytes.append(fmean(sent))
        curve.mean.append(fmean(scores))
        curve.low.append(min(scores))
        curve.high.append(max(scores))
    return curve


def _by_step(points: Sequence[Point], metric: str) -> dict[int, Point]:
    """The points that have the score."""
    found: dict[int, Point] = {}
    for point in points:
        score = point.value(metric)
        if score is not None:
            found[point.step] = point
    return found
