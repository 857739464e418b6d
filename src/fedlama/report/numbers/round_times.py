"""How long the rounds of a deployment took: over a network, the seconds of a round are a result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fedlama.base import InputError
from fedlama.report.numbers.outcomes import MAX_SECONDS
from fedlama.report.numbers.reading import DEPLOYED
from fedlama.run.directory import TIMINGS
from fedlama.run.reading import read_timings
from fedlama.run.recorded import RecordedRun


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of one round, over all rounds of a setting's runs."""

    median: float
    longest: float


def round_times(runs: Iterable[RecordedRun]) -> RoundTimes | None:
    """How long the rounds of these runs took; None where one of them was simulated, or has no times.

    Arguments:
        runs: the runs of one setting.
    """
    seconds: list[float] = []
    for run in runs:
        if DEPLOYED not in run.config.versions:
            return None
        of_run = _of_run(run.path)
        if not of_run:
            return None
        seconds += of_run
    if not seconds:
        return None
    return RoundTimes(median(seconds), max(seconds))


def _of_run(folder: Path) -> list[float]:
    """The seconds of every round; none where the file cannot be read, or cannot be one that a run wrote."""
    seconds: list[float] = []
    before = 0.0
    try:
        for timing in read_timings(folder / TIMINGS):
            taken = timing.seconds - before
            if not math.isfinite(taken) or not 0 <= taken <= MAX_SECONDS:
                return []
            seconds.append(taken)
            before = timing.seconds
    except InputError:
        # Nothing depends on it: a page is drawn without.
        return []
    return seconds
