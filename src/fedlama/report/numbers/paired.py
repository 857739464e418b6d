"""What settings send and what that costs: shares of the baseline's bytes beside the paired differences to it."""

from __future__ import annotations

from dataclasses import dataclass

from fedlama.base import InputError
from fedlama.report.numbers.comparison import Comparison, Setting
from fedlama.report.numbers.pairs import PairedDifference, paired_difference


@dataclass(frozen=True)
class Pair:
    """A setting against the baseline."""

    label: str
    accuracy: float  # mean over its seeds
    mean: float  # difference to the baseline, seed by seed
    error: float | None  # standard error of that mean, which one seed does not have
    seeds: tuple[int, ...]
    uplink_share: float  # of the baseline's bytes
    total_share: float  # up and down
    is_plain: bool  # FedAvg and nothing else


def paired(comparison: Comparison) -> list[Pair]:
    """Every finished setting with an accuracy, the baseline first."""
    baseline = comparison.baseline
    if baseline is None:
        raise InputError("paired differences need a baseline: study.baseline names it")
    itself = PairedDifference(0.0, None, tuple(baseline.seeds))
    pairs = [_pair(baseline, baseline, itself)]
    for setting in comparison.settings:
        difference = paired_difference(setting, comparison)
        if difference is not None:
            pairs.append(_pair(setting, baseline, difference))
    return pairs


def _pair(setting: Setting, baseline: Setting, difference: PairedDifference) -> Pair:
    if setting.accuracy is None:
        raise InputError(f"{setting.label} has no accuracy to compare")
    total = setting.uplink_bytes + setting.downlink_bytes
    whole = baseline.uplink_bytes + baseline.downlink_bytes
    return Pair(
        label=setting.label,
        accuracy=setting.accuracy.mean,
        mean=difference.mean,
        error=difference.error,
        seeds=difference.seeds,
        uplink_share=setting.uplink_bytes / baseline.uplink_bytes,
        total_share=total / whole,
        is_plain=not setting.adapts,
    )
