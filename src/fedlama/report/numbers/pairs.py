"""Settings against the baseline, seed by seed: with one seed they share clients, batches and initial weights.

Beside the paired difference of a score stands what a setting sends, as a share of the baseline's bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedlama.base import InputError
from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.study.pairs import PairedDifference, paired_scores


def paired_difference(
    setting: ComparedSetting, comparison: RunComparison
) -> PairedDifference | None:
    """How a setting differs from the baseline; None for the baseline itself, or where they share no seed.

    Arguments:
        setting: one of the comparison's.
        comparison: what it is compared in.
    """
    baseline = _partner(setting, comparison)
    if baseline is None:
        return None
    own = _scores_by_seed(setting, comparison)
    others = _scores_by_seed(baseline, comparison)
    return paired_scores(own, others)


def paired_average(
    setting: ComparedSetting, comparison: RunComparison
) -> PairedDifference | None:
    """The same of moving averages of the models, over the seeds at which both evaluated one.

    Arguments:
        setting: one of the comparison's.
        comparison: what it is compared in.
    """
    baseline = _partner(setting, comparison)
    if baseline is None:
        return None
    return paired_scores(setting.average_scores, baseline.average_scores)


def _partner(
    setting: ComparedSetting, comparison: RunComparison
) -> ComparedSetting | None:
    """The baseline, if both are finished and this is another setting."""
    baseline = comparison.baseline
    if baseline is None or baseline.label == setting.label:
        return None
    if not (setting.finished and baseline.finished):
        return None
    return baseline


def _scores_by_seed(
    setting: ComparedSetting, comparison: RunComparison
) -> dict[int, float]:
    score = comparison.score(setting)
    if score is None:
        return {}

    pairs = zip(setting.seeds, score.values, strict=True)
    return dict(pairs)


@dataclass(frozen=True)
class Pair:
    """A setting against the baseline."""

    label: str
    score: float  # mean over its seeds
    mean: float  # difference to the baseline, seed by seed
    error: float | None  # standard error of that mean, which one seed does not have
    seeds: tuple[int, ...]
    uplink_share: float  # of the baseline's bytes
    total_share: float  # up and down
    is_plain: bool  # FedAvg and nothing else


def paired(comparison: RunComparison) -> list[Pair]:
    """Every finished setting with a metric, the baseline first."""
    baseline = comparison.baseline
    if baseline is None:
        raise InputError("paired differences need a baseline: study.baseline names it")

    itself = PairedDifference(
        mean=0.0,
        error=None,
        seeds=tuple(baseline.seeds),
    )
    pairs = [_pair(baseline, baseline, itself)]
    for setting in comparison.settings:
        difference = paired_difference(setting, comparison)
        if difference is not None:
            pairs.append(_pair(setting, baseline, difference))
    return pairs


def _pair(
    setting: ComparedSetting, baseline: ComparedSetting, difference: PairedDifference
) -> Pair:
    if setting.score is None:
        raise InputError(f"{setting.label} has no metric to compare")
    total = setting.uplink_bytes + setting.downlink_bytes
    whole = baseline.uplink_bytes + baseline.downlink_bytes
    return Pair(
        label=setting.label,
        score=setting.score.mean,
        mean=difference.mean,
        error=difference.error,
        seeds=difference.seeds,
        uplink_share=setting.uplink_bytes / baseline.uplink_bytes,
        total_share=total / whole,
        is_plain=not setting.adapts,
    )
