"""Settings against the baseline, seed by seed: with one seed they share clients, batches and initial weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev

from fedlama.report.comparison import Comparison, Setting
from fedlama.report.formats import UNKNOWN


@dataclass(frozen=True)
class PairedDifference:
    """A setting's score minus the baseline's, over the seeds that both have."""

    mean: float
    error: float | None  # standard error of the mean, which one seed does not have
    seeds: tuple[int, ...]


def paired_difference(setting: Setting, comparison: Comparison) -> PairedDifference | None:
    """How a setting differs from the baseline; None for the baseline itself, or where they share no seed."""
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
    error = None
    if len(seeds) > 1:
        error = stdev(differences) / math.sqrt(len(seeds))
    return PairedDifference(fmean(differences), error, tuple(seeds))


def _scores_by_seed(setting: Setting, comparison: Comparison) -> dict[int, float]:
    score = comparison.score(setting)
    if score is None:
        return {}
    return dict(zip(setting.seeds, score.values, strict=True))


def difference_text(difference: PairedDifference | None, metric: str) -> str:
    """`−2.4 ± 0.5`: in points where the score is an accuracy."""
    if difference is None:
        return UNKNOWN
    scale, digits = 1, 3
    if metric == "accuracy":
        scale, digits = 100, 1
    mean = f"{scale * difference.mean:+.{digits}f}".replace("-", "−")
    if difference.error is None:
        return mean
    return f"{mean} ± {scale * difference.error:.{digits}f}"


def difference_heading(comparison: Comparison) -> str:
    """What is subtracted."""
    if comparison.baseline is None:
        return "difference"
    return f"− {comparison.baseline.label}"


def difference_note(comparison: Comparison) -> str | None:
    """How to read the column of differences; None where there is nothing in it."""
    found = [paired_difference(setting, comparison) for setting in comparison.settings]
    known = [difference for difference in found if difference is not None]
    if not known or comparison.baseline is None:
        return None
    unit = "points, " if comparison.metric == "accuracy" else ""
    what = f"Differences are to {comparison.baseline.label}, {unit}seed by seed"
    if all(difference.error is None for difference in known):
        return f"{what}; one seed has no error."
    return f"{what}: mean ± standard error."
