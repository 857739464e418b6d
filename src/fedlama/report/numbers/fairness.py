"""How the global model fares with each client by itself, where that was evaluated: the worst tenth, and the spread."""

from __future__ import annotations

from dataclasses import dataclass

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.seeds import Spread, spread_of
from fedlama.training.records import EvaluatedOn


@dataclass(frozen=True)
class Fairness:
    """One setting over its clients; numbers are over seeds.

    Arguments:
        index: Of the setting.
        look: Of the setting.
        label: Its name.
        on: Whose samples: the clients' "test" or "training" samples.
        mean: Over clients, each counted alike.
        worst_decile: The mean over the tenth of clients that fares worst.
        spread: The standard deviation over clients.
        scores: Of every client of the first seed, the worst first; empty where the runs do not have them.
    """

    index: int
    look: int
    label: str
    on: EvaluatedOn
    mean: Spread | None
    worst_decile: Spread | None
    spread: Spread | None
    scores: tuple[float, ...]


def fairness(comparison: RunComparison) -> list[Fairness]:
    """One for each setting that was evaluated client by client."""
    found: list[Fairness] = []
    for index, setting in enumerate(comparison.settings):
        if not setting.clients:
            continue
        one = _fairness(index, setting, comparison)
        found.append(one)
    return found


def _fairness(
    index: int, setting: ComparedSetting, comparison: RunComparison
) -> Fairness:
    every = setting.clients

    known = [score for score in every[0].scores if score is not None]
    worst_first = sorted(known, reverse=not comparison.higher_is_better)

    means = [one.mean for one in every]
    worst = [one.worst_decile for one in every]
    spreads = [one.spread for one in every]
    return Fairness(
        index=index,
        look=setting.look,
        label=setting.label,
        on=every[0].on,
        mean=spread_of(means),
        worst_decile=spread_of(worst),
        spread=spread_of(spreads),
        scores=tuple(worst_first),
    )
