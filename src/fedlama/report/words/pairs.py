"""Differences to the baseline, in words and figures."""

from __future__ import annotations

from fedlama.report.numbers.comparison import Comparison
from fedlama.report.numbers.pairs import PairedDifference, paired_difference
from fedlama.report.words.formats import UNKNOWN
from fedlama.training.records import ACCURACY


def difference_text(difference: PairedDifference | None, metric: str) -> str:
    """`−2.4 ± 0.5`: in points where the score is an accuracy.

    Arguments:
        difference: to the baseline; a dash where there is none.
        metric: what was subtracted, `accuracy` or `loss`.
    """
    if difference is None:
        return UNKNOWN
    scale = 1
    digits = 3
    if metric == ACCURACY:
        scale = 100
        digits = 1
    mean = scale * difference.mean
    text = f"{mean:+.{digits}f}".replace("-", "−")
    if not float(f"{mean:.{digits}f}"):
        # A sign would say that there is a difference
        text = f"{0:.{digits}f}"
    if difference.error is None:
        return text
    error = scale * difference.error
    return f"{text} ± {error:.{digits}f}"


def difference_heading(comparison: Comparison) -> str:
    """What is subtracted."""
    if comparison.baseline is None:
        return "difference"
    return f"− {comparison.baseline.label}"


def difference_notes(comparison: Comparison) -> list[str]:
    """How to read the column of differences; nothing where there is nothing in it."""
    known: list[PairedDifference] = []
    for setting in comparison.settings:
        difference = paired_difference(setting, comparison)
        if difference is not None:
            known.append(difference)
    if not known or comparison.baseline is None:
        return []
    unit = ""
    if comparison.metric == ACCURACY:
        unit = "points, "
    what = f"Differences are to {comparison.baseline.label}, {unit}seed by seed"
    if all(difference.error is None for difference in known):
        return [f"{what}; one seed has no error."]
    return [f"{what}: mean ± standard error."]
