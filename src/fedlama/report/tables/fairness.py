"""The table of clients: what they reach on average, what the worst tenth reaches, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.fairness import Fairness
from fedlama.report.numbers.seeds import Spread
from fedlama.report.words.formats import UNKNOWN, spread_text
from fedlama.training.records import ACCURACY

FAIRNESS_HEADINGS = (
    "setting",
    "mean over clients",
    "worst tenth of clients",
    "spread over clients",
)


@dataclass(frozen=True)
class FairnessRow:
    """One setting; its numbers are under all headings but the first."""

    look: int
    label: str
    numbers: list[str]


def fairness_rows(
    found: Sequence[Fairness], comparison: RunComparison
) -> list[FairnessRow]:
    """One row per setting.

    Arguments:
        found: The settings that were evaluated client by client.
        comparison: Says which metric it is.
    """
    rows: list[FairnessRow] = []
    for one in found:
        numbers = [
            spread_text(one.mean, comparison.metric),
            spread_text(one.worst_decile, comparison.metric),
            _width(one.spread, comparison.metric),
        ]
        rows.append(FairnessRow(one.look, one.label, numbers))
    return rows


def _width(spread: Spread | None, metric: str) -> str:
    """A standard deviation: of accuracies in points."""
    if spread is None:
        return UNKNOWN
    if metric == ACCURACY:
        return f"{100 * spread.mean:.1f} points"
    return f"{spread.mean:.3f}"
