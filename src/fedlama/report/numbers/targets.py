"""A score to reach, and the first step at which a setting has it.

Settings are held against each other at the steps at which all of them were evaluated. Evaluation comes at cycle ends,
so a setting with short cycles is looked at more often, and would be found to be sooner for that alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedlama.base import InputError
from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.outcomes import LOSS
from fedlama.training.records import ACCURACY

# A target of our own choice is a multiple of a thousandth, so that what is printed is what is meant.
TARGET_GRAIN = 1000

ScoreAtStep = Mapping[int, float]


def checked_target(target: float, metric: str) -> float:
    """A target that a person gives, or InputError if it is no score.

    Arguments:
        target: The score.
        metric: What it is a score of.
    """
    if metric == ACCURACY:
        is_one = 0 < target <= 1
        allowed = "a number above 0 and up to 1"
    elif metric == LOSS:
        is_one = 0 < target < math.inf
        allowed = "a number above 0 and finite"
    else:
        is_one = math.isfinite(target)
        allowed = "a finite number"
    if not is_one:
        raise InputError(
            f"--target {target:g} is no {metric}: write {allowed}, such as --target 0.9"
        )
    return target


def compared_curves(comparison: RunComparison) -> list[ScoreAtStep]:
    """The mean score of each setting at the steps at which all finished ones were evaluated.

    Arguments:
        comparison: The settings; those that are not finished may lack the last of these steps.
    """
    counted = _counted(comparison)
    common: set[int] = set()
    if counted:
        common = set(counted[0].curve.steps)
    for setting in counted[1:]:
        common &= set(setting.curve.steps)

    curves: list[ScoreAtStep] = []
    for setting in comparison.settings:
        scores = dict(zip(setting.curve.steps, setting.curve.mean, strict=True))
        # Runs that share no step are shown as they are
        if common:
            scores = {step: score for step, score in scores.items() if step in common}
        curves.append(scores)
    return curves


def common_target(
    comparison: RunComparison, curves: Sequence[ScoreAtStep]
) -> float | None:
    """The best score that every setting reaches, on the easier side of a thousandth; finished settings count first.

    Arguments:
        comparison: The settings.
        curves: Of each of them.
    """
    counted = _counted(comparison)
    reached: list[float] = []
    for setting, curve in zip(comparison.settings, curves, strict=True):
        if setting in counted and curve:
            best = max(curve.values(), key=lambda score: comparison.sign * score)
            reached.append(best)
    if not reached:
        return None

    # The best score of the worst setting, rounded to what is easier to reach
    if comparison.higher_is_better:
        grains = math.floor(_in_grains(min(reached)))
    else:
        grains = math.ceil(_in_grains(max(reached)))
    return grains / TARGET_GRAIN


def first_step(curve: ScoreAtStep, target: float, sign: int) -> int | None:
    """The first step at which the target is reached; None if it never is.

    Arguments:
        curve: Of one setting, in the order of its steps.
        target: The score to reach.
        sign: 1 where more of the score is better, −1 where less is.
    """
    for step, score in curve.items():
        if sign * score >= sign * target:
            return step
    return None


def _counted(comparison: RunComparison) -> list[ComparedSetting]:
    """The settings that decide: the finished ones, or all that were evaluated where none is."""
    evaluated = [setting for setting in comparison.settings if setting.curve.steps]
    finished = [setting for setting in evaluated if setting.finished]
    return finished or evaluated


def _in_grains(score: float) -> float:
    """Rounded, so that 0.29 is 290 thousandths and not 289.99999999999994."""
    return round(score * TARGET_GRAIN, 6)
