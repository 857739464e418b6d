"""At the same number of bytes, which is better? FedAvg's settings as a line of score over bytes, and who lies above it.

Bytes are those up and down of all clients. Between two FedAvg settings the score is taken to change evenly with the
logarithm of the bytes, as it does on the drawing's axis: a straight line over the bytes themselves would flatter
whoever is compared with it, because scores rise ever more slowly with bytes.

The gap to the line is taken seed by seed, because with one seed settings share clients, batches and initial weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.study.pairs import PairedDifference, paired_scores


@dataclass(frozen=True)
class Reached:
    """What one run sent and reached."""

    total_bytes: float
    score: float


@dataclass(frozen=True)
class FrontierPoint:
    """A setting on the drawing."""

    index: int  # of the setting
    label: str
    total_bytes: float
    mean: float
    deviation: float | None
    adapts: bool
    runs: Mapping[int, Reached] = field(default_factory=dict)  # by seed


@dataclass(frozen=True)
class Standing:
    """A setting against FedAvg at its bytes: the score that FedAvg's line has there, and the settings beside it."""

    point: FrontierPoint
    expected: float
    # To the line, seed by seed; of means, and without seeds, where none is shared
    difference: PairedDifference
    between: tuple[str, ...]
    # FedAvg's settings that the line does not go through, because they lack a seed
    left_out: tuple[str, ...] = ()
    # To the line through those as well, over the fewer seeds that all of them have
    through_all: PairedDifference | None = None

    @property
    def gap(self) -> float:
        """How far the setting lies above the line."""
        return self.difference.mean


@dataclass(frozen=True)
class _OnLine:
    score: float
    between: tuple[str, ...]


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

    runs: dict[int, Reached] = {}
    for run, value in zip(setting.runs, score.values, strict=True):
        summary = run.summary
        assert summary is not None  # of a finished setting, only finished runs count
        sent = summary.uplink_bytes + summary.downlink_bytes
        runs[run.seed] = Reached(sent, value)
    return FrontierPoint(
        index=index,
        label=setting.label,
        total_bytes=total,
        mean=score.mean,
        deviation=score.deviation,
        adapts=setting.adapts,
        runs=runs,
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


def standing_in(label: str, comparison: RunComparison) -> Standing | None:
    """A setting of a comparison against its FedAvg's line; None for FedAvg itself and beyond the line's ends.

    Arguments:
        label: of the setting.
        comparison: what it is compared in.
    """
    found = frontier_points(comparison)
    line = fedavg_line(found, comparison)
    for point in found:
        if point.label == label and point.adapts:
            return standing(point, line)
    return None


def standing(point: FrontierPoint, line: Sequence[FrontierPoint]) -> Standing | None:
    """A setting against the line at its bytes; None beyond the line's ends.

    The line goes through the FedAvg settings that have every seed of the setting, so that none of its seeds is lost;
    where those do not lie around it, through all of them at the seeds that all have; where there is no such seed,
    means are compared.

    Arguments:
        point: the setting.
        line: FedAvg's settings by ascending bytes.
    """
    whole = _at_seeds(point, line, _shared_seeds(point, line))
    complete: list[FrontierPoint] = []
    left_out: list[str] = []
    for one in line:
        if set(point.runs) <= set(one.runs):
            complete.append(one)
        else:
            left_out.append(one.label)
    if not left_out:
        return whole or _of_means(point, line)

    best = _at_seeds(point, complete, list(point.runs))
    if best is None:
        return whole or _of_means(point, line)
    through_all = None
    if whole is not None:
        through_all = whole.difference
    return Standing(
        point=point,
        expected=best.expected,
        difference=best.difference,
        between=best.between,
        left_out=tuple(left_out),
        through_all=through_all,
    )


def _shared_seeds(point: FrontierPoint, line: Sequence[FrontierPoint]) -> list[int]:
    shared = set(point.runs)
    for one in line:
        shared &= set(one.runs)
    return sorted(shared)


def _at_seeds(
    point: FrontierPoint, line: Sequence[FrontierPoint], seeds: Sequence[int]
) -> Standing | None:
    """Seed by seed, each with the bytes and scores of its own runs; None unless all lie between ends of the line."""
    own: dict[int, float] = {}
    expected: dict[int, float] = {}
    between: dict[str, None] = {}  # each once
    for seed in seeds:
        run = point.runs[seed]
        beside = [(one.label, one.runs[seed]) for one in line]
        found = _on_line(run.total_bytes, beside)
        if found is None:
            return None
        own[seed] = run.score
        expected[seed] = found.score
        between.update(dict.fromkeys(found.between))

    difference = paired_scores(own, expected)
    if difference is None:
        return None
    return Standing(
        point=point,
        expected=fmean(expected.values()),
        difference=difference,
        between=tuple(between),
    )


def _of_means(point: FrontierPoint, line: Sequence[FrontierPoint]) -> Standing | None:
    """Without a seed in common nothing is known of the difference's error."""
    means = [(one.label, Reached(one.total_bytes, one.mean)) for one in line]
    found = _on_line(point.total_bytes, means)
    if found is None:
        return None
    gap = point.mean - found.score
    return Standing(
        point=point,
        expected=found.score,
        difference=PairedDifference(mean=gap, error=None, seeds=()),
        between=found.between,
    )


def _on_line(total: float, line: Sequence[tuple[str, Reached]]) -> _OnLine | None:
    """Read off the line at so many bytes, on the logarithmic axis; None beyond its ends."""
    for label, run in line:
        if run.total_bytes == total:
            return _OnLine(run.score, (label,))

    for (low_label, low), (high_label, high) in pairwise(line):
        is_between = low.total_bytes < total < high.total_bytes
        if not is_between:
            continue
        whole = math.log(high.total_bytes / low.total_bytes)
        part = math.log(total / low.total_bytes)
        share = part / whole
        rise = high.score - low.score
        score = low.score + share * rise
        neighbours = (low_label, high_label)
        return _OnLine(score, neighbours)
    return None
