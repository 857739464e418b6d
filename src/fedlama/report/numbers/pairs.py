"""Settings against the baseline, seed by seed: with one seed they share clients, batches and initial weights."""

from __future__ import annotations

from fedlama.report.numbers.comparison import Comparison, Setting
from fedlama.study.pairs import PairedDifference, paired_scores


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
    return paired_scores(own, others)


def _scores_by_seed(setting: Setting, comparison: Comparison) -> dict[int, float]:
    score = comparison.score(setting)
    if score is None:
        return {}
    return dict(zip(setting.seeds, score.values, strict=True))
