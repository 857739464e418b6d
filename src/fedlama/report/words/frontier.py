"""Better or worse than FedAvg at the same number of bytes, up and down together, in a sentence per setting."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.frontier import (
    FrontierPoint,
    Standing,
    fedavg_line,
    frontier_points,
    standing,
)
from fedlama.report.numbers.outcomes import LOSS
from fedlama.report.words.formats import gap_text, joined, score_text
from fedlama.report.words.pairs import difference_text
from fedlama.training.records import ACCURACY


def equal_bytes(comparison: RunComparison, only: str | None = None) -> list[str]:
    """A sentence for every setting that adapts: better or worse than FedAvg at its number of bytes.

    Arguments:
        comparison: the settings; without a FedAvg among them there is nothing to say.
        only: the label of the one setting that is asked for; by default all.
    """
    found = frontier_points(comparison)
    line = fedavg_line(found, comparison)
    if not line:
        return []

    sentences: list[str] = []
    for point in found:
        if point.adapts and only in (None, point.label):
            sentences.append(_sentence(point, line, comparison))
    return sentences


def _sentence(
    point: FrontierPoint, line: Sequence[FrontierPoint], comparison: RunComparison
) -> str:
    stands = standing(point, line)
    if stands is None:
        amount = "more"
        if point.total_bytes < line[0].total_bytes:
            amount = "fewer"
        return (
            f"{point.label} moved {amount} bytes in both directions than any FedAvg setting here, "
            f"so there is no FedAvg at equal bytes to compare it with."
        )

    expected = score_text(stands.expected, comparison.metric)
    against = f"{_whom(stands)} ({expected}){_how(stands, comparison)}"
    said = f"At equal bytes of both directions {point.label} {_did(stands, comparison)} {against}."
    if stands.left_out:
        said += f" {_without(stands, comparison)}"
    return said


def _did(stands: Standing, comparison: RunComparison) -> str:
    size, direction = gap_text(stands.gap, comparison.metric, comparison.sign)
    if not size:
        return "was level with"
    if comparison.metric == ACCURACY:
        return f"reached {size} {direction} than"
    if comparison.metric == LOSS:
        return f"had a loss {size} {direction} than"
    if comparison.sign < 0:
        return f"had {comparison.metric} {size} {direction} than"
    return f"had {size} {direction} {comparison.metric} than"


def _whom(stands: Standing) -> str:
    if len(stands.between) == 1:
        return stands.between[0]
    return f"a FedAvg between {joined(stands.between)}"


def _how(stands: Standing, comparison: RunComparison) -> str:
    """The difference once more with its error, and what it is over."""
    seeds = stands.difference.seeds
    if not seeds:
        return "; that is of means, as no seed is shared"
    if stands.difference.error is None:
        return "; one seed has no error"
    exact = difference_text(stands.difference, comparison.metric)
    return f": {exact}, seed by seed ({_seeds(seeds)})"


def _without(stands: Standing, comparison: RunComparison) -> str:
    """Which of FedAvg's settings the line does not go through, and what it would be with them."""
    names = joined(stands.left_out)
    lacking = "lack"
    if len(stands.left_out) == 1:
        lacking = "lacks"
    said = f"FedAvg's line leaves out {names}, which {lacking} some of these seeds"
    if stands.through_all is None:
        return f"{said}."
    exact = difference_text(stands.through_all, comparison.metric)
    return f"{said}; through all of its settings it is {exact} ({_seeds(stands.through_all.seeds)})."


def _seeds(seeds: Sequence[int]) -> str:
    listed = ", ".join(map(str, seeds))
    if len(seeds) == 1:
        return f"seed {listed}"
    return f"seeds {listed}"
