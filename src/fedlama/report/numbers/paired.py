"""Paired differences: a setting against the baseline, seed by seed.

Settings of a study share clients, batches and first weights at a seed. What a seed gives or takes from all of them
drops out of the difference, so a few seeds tell more than two means with their spreads do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fedlama.base import InputError
from fedlama.report.numbers.comparison import Comparison, Setting


@dataclass(frozen=True)
class Pair:
    """A setting against the baseline over the seeds that both have finished."""

    index: int  # of the setting, for its colour
    label: str
    seeds: tuple[int, ...]
    accuracy: float  # mean over these seeds
    differences: tuple[float, ...]  # of the accuracy, one per seed
    is_plain: bool  # FedAvg and nothing else
    uplink_share: float  # of the baseline's bytes
    total_share: float  # up and down

    @property
    def mean(self) -> float:
        """The mean difference."""
        return statistics.fmean(self.differences)

    @property
    def error(self) -> float | None:
        """The standard error of the mean; one seed has none."""
        if len(self.differences) < 2:
            return None
        return statistics.stdev(self.differences) / math.sqrt(len(self.differences))


def paired(comparison: Comparison) -> list[Pair]:
    """Every setting with an accuracy against the baseline, which is the first of them."""
    baseline = comparison.baseline
    if baseline is None:
        raise InputError("paired differences need a baseline: study.baseline names it")
    base = _by_seed(baseline)
    pairs: list[Pair] = []
    for index, setting in enumerate(comparison.settings):
        own = _by_seed(setting)
        seeds = [seed for seed in own if seed in base]
        if not seeds:
            continue
        pairs.append(_pair(index, setting, seeds, [base[seed] for seed in seeds], [own[seed] for seed in seeds]))
    pairs.sort(key=lambda pair: pair.label != baseline.label)
    return pairs


@dataclass(frozen=True)
class _Finished:
    """What a finished run reached and sent."""

    accuracy: float
    uplink_bytes: int
    downlink_bytes: int


def _by_seed(setting: Setting) -> dict[int, _Finished]:
    found: dict[int, _Finished] = {}
    for run in setting.runs:
        summary = run.summary
        if summary is None or summary.accuracy is None:
            continue
        found[run.seed] = _Finished(summary.accuracy, summary.uplink_bytes, summary.downlink_bytes)
    return found


def _pair(
    index: int, setting: Setting, seeds: Sequence[int], base: Sequence[_Finished], own: Sequence[_Finished]
) -> Pair:
    differences = [ours.accuracy - theirs.accuracy for ours, theirs in zip(own, base, strict=True)]
    up = sum(one.uplink_bytes for one in own)
    down = sum(one.downlink_bytes for one in own)
    base_up = sum(one.uplink_bytes for one in base)
    base_down = sum(one.downlink_bytes for one in base)
    return Pair(
        index=index,
        label=setting.label,
        seeds=tuple(seeds),
        accuracy=statistics.fmean(one.accuracy for one in own),
        differences=tuple(differences),
        is_plain=not setting.adapts,
        uplink_share=up / base_up,
        total_share=(up + down) / (base_up + base_down),
    )
