"""Differences to the baseline, in words and figures."""

from __future__ import annotations

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.pairs import (
    PairedDifference,
    paired_average,
    paired_difference,
)
from fedlama.report.numbers.seeds import spread_of
from fedlama.report.words.formats import UNKNOWN, joined, spread_text
from fedlama.training.records import ACCURACY

# What the heading of the column begins with
MINUS = "−"
# After the point, of points of accuracy and of other metrics; a standard error is often a few tenths of a point
POINT_DIGITS = 2
OTHER_DIGITS = 3
# Beside the columns of the models themselves
AVERAGE_HEADINGS = ("moving average", "its difference")


def difference_text(difference: PairedDifference | None, metric: str) -> str:
    """`−2.41 ± 0.52`: in points where the score is an accuracy.

    Arguments:
        difference: to the baseline; a dash where there is none.
        metric: what was subtracted, `accuracy` or `loss`.
    """
    if difference is None:
        return UNKNOWN
    scale = 100
    digits = POINT_DIGITS
    if metric != ACCURACY:
        scale = 1
        digits = OTHER_DIGITS
    mean = scale * difference.mean
    text = f"{mean:+.{digits}f}".replace("-", "−")
    if not float(f"{mean:.{digits}f}"):
        # A sign would say that there is a difference
        text = f"{0:.{digits}f}"
    if difference.error is None:
        return text
    error = scale * difference.error
    return f"{text} ± {error:.{digits}f}"


def difference_heading(comparison: RunComparison) -> str:
    """What is subtracted."""
    if comparison.baseline is None:
        return "difference"
    return f"{MINUS} {comparison.baseline.label}"


def shows_differences(comparison: RunComparison) -> bool:
    """Whether a table has a column of them: some setting has a seed in common with the baseline."""
    found = [paired_difference(setting, comparison) for setting in comparison.settings]
    return any(difference is not None for difference in found)


def difference_notes(comparison: RunComparison) -> list[str]:
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


def unequal_seeds_notes(comparison: RunComparison) -> list[str]:
    """That the means of two settings are not of the same seeds, as where a run diverged; nothing where all are."""
    settings: dict[tuple[int, ...], list[str]] = {}
    for setting in comparison.settings:
        labels = settings.setdefault(tuple(setting.seeds), [])
        labels.append(setting.label)
    if len(settings) < 2:
        return []

    parts: list[str] = []
    for seeds, labels in settings.items():
        listed = ", ".join(map(str, seeds))
        parts.append(f"{joined(labels)}: {listed}")
    note = f"Means are over different seeds ({'; '.join(parts)})."
    if shows_differences(comparison):
        note += " Compare settings by their differences, which are over the seeds that both have."
    return [note]


def shows_averages(comparison: RunComparison) -> bool:
    """Whether a moving average was evaluated beside any of the models."""
    return any(setting.average_scores for setting in comparison.settings)


def average_cells(setting: ComparedSetting, comparison: RunComparison) -> list[str]:
    """What the moving average of a setting's model reached, and how that differs from the baseline's.

    Arguments:
        setting: one of the comparison's.
        comparison: what it is compared in.
    """
    metric = comparison.metric
    values = list(setting.average_scores.values())
    score = spread_text(spread_of(values), metric)
    difference = paired_average(setting, comparison)
    return [score, difference_text(difference, metric)]


def average_notes(comparison: RunComparison) -> list[str]:
    """What a moving average is, and which seeds have none; nothing where none was evaluated."""
    if not shows_averages(comparison):
        return []
    said = [
        "A moving average of the models of the last rounds swings less with their clients than the last model does; it "
        "was evaluated beside it."
    ]
    lacking: list[str] = []
    for setting in comparison.settings:
        evaluated = list(setting.average_scores)
        if not evaluated:
            lacking.append(f"{setting.label} (all seeds)")
        elif evaluated != setting.seeds:
            others = [seed for seed in setting.seeds if seed not in evaluated]
            seeds = ", ".join(map(str, others))
            lacking.append(f"{setting.label} (seed {seeds})")
    if lacking:
        said.append(f"None was evaluated of {', '.join(lacking)}.")
    return said


def average_fields(
    setting: ComparedSetting, comparison: RunComparison
) -> dict[str, object]:
    """The numbers behind `average_cells`, for CSV; nothing where no moving average was evaluated.

    Arguments:
        setting: one of the comparison's.
        comparison: what it is compared in.
    """
    if not shows_averages(comparison):
        return {}
    values = list(setting.average_scores.values())
    score = spread_of(values)
    difference = paired_average(setting, comparison)
    fields: dict[str, object] = {
        "average_score": None,
        "average_difference": None,
        "average_difference_error": None,
    }
    if score is not None:
        fields["average_score"] = score.mean
    if difference is not None:
        fields["average_difference"] = difference.mean
        fields["average_difference_error"] = difference.error
    return fields
