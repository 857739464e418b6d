"""Settings against the baseline, seed by seed: with one seed they share clients, batches and initial weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedlama.report.numbers.comparison import Comparison, Setting


@dataclass(frozen=True)
class PairedDifference:
    """A setting's score minus the baseline's, over the seeds that both have."""

    mean: float
    error: float | None  # standard error of the mean, which one seed does not have
    seeds: tuple[int, ...]


def paired_difference(setting: Setting, comparison: Comparison) -> PairedDifference | None:
    """How a setting differs from the baseline; None for the baseline itself, or where they share no seed.

    Arguments:
        setting: one of the comparison's.
        comparison: what it is compared in.
    """
    baseline = comparison.baseline
    if baseline is None or baseline.label == setting.label:
        return None
    if not (setting.finished and baseline.finished):
        return None
    own = _scores_by_seed(setting, comparison)
    others = _scores_by_seed(baseline, comparison)
    seeds = sorted(set(own) & set(others))
    if not seeds:
        return None
    differences = [own[seed] - others[seed] for seed in seeds]
    return PairedDifference(fmean(differences), standard_error(differences), tuple(seeds))


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean of these values; one alone has none."""
    if len(values) < 2:
        return None
    return stdev(values) / math.sqrt(len(values))


def _scores_by_seed(setting: Setting, comparison: Comparison) -> dict[int, float]:
    score = comparison.score(setting)
    if score is None:
        return {}
    return dict(zip(setting.seeds, score.values, strict=True))
