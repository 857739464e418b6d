"""Differences seed by seed: with one seed, settings share clients, batches and initial weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class PairedDifference:
    """A setting's score minus the baseline's, over the seeds that both have."""

    mean: float
    error: float | None  # standard error of the mean, which one seed does not have
    seeds: tuple[int, ...]


def paired_scores(
    own: Mapping[int, float], others: Mapping[int, float]
) -> PairedDifference | None:
    """The difference between two settings; None where they share no seed.

    Arguments:
        own: The score of one setting by seed.
        others: That of the baseline.
    """
    seeds = sorted(set(own) & set(others))
    if not seeds:
        return None

    differences: list[float] = []
    for seed in seeds:
        difference = own[seed] - others[seed]
        differences.append(difference)
    return PairedDifference(
        mean=fmean(differences),
        error=standard_error(differences),
        seeds=tuple(seeds),
    )


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean of these values; one alone has none."""
    count = len(values)
    if count < 2:
        return None
    return stdev(values) / math.sqrt(count)
