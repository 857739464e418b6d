"""What there is to say of one panel of a reproduced table, beside its numbers."""

from __future__ import annotations

from fedlama.report.numbers.reproduction import PanelOutcome, long_share
from fedlama.report.words.formats import joined, percent
from fedlama.report.words.frontier import equal_bytes
from fedlama.report.words.pairs import (
    average_notes,
    difference_notes,
    unequal_seeds_notes,
)
from fedlama.report.words.study import choice_notes, divergence_notes


def panel_sentences(outcome: PanelOutcome) -> list[str]:
    """What there is to say of a panel beside what was scaled down.

    Arguments:
        outcome: What came of the panel's study.
    """
    said = [f"Costs are shares of {outcome.baseline}'s."]
    if outcome.comparison.baseline is None:
        said.append(
            f"{outcome.baseline} is not finished, so there are no costs and no differences yet."
        )
    said += _unfinished_notes(outcome)
    said += difference_notes(outcome.comparison)
    said += divergence_notes(outcome.index, outcome.comparison)
    said += unequal_seeds_notes(outcome.comparison)
    said += average_notes(outcome.comparison)
    said += _long_share_notes(outcome)
    said += equal_bytes(outcome.comparison)
    # The first is the same for all panels
    choices = choice_notes(outcome.index)
    said += choices[1:]
    return said


def _unfinished_notes(outcome: PanelOutcome) -> list[str]:
    """How many of the recipe's seeds are finished, of each setting that lacks some."""
    settings: dict[str, list[str]] = {}
    for setting in outcome.panel.study.settings:
        name = setting.name
        wanted = len(setting.seeds)
        finished = _finished_seeds(outcome, name)
        # Where it diverged, nothing is to come.
        ended = finished + _diverged_seeds(outcome, name)
        if ended < wanted:
            names = settings.setdefault(f"{finished} of {wanted} seeds", [])
            names.append(name)
    if not settings:
        return []

    parts: list[str] = []
    for share, names in settings.items():
        listed = joined(names)
        parts.append(f"{share} of {listed}")
    together = "; ".join(parts)
    return [f"Finished so far: {together}."]


def _finished_seeds(outcome: PanelOutcome, label: str) -> int:
    """At how many seeds a setting is finished; one that is not in the comparison has no run to show."""
    for setting in outcome.comparison.settings:
        if setting.label == label and setting.finished:
            return len(setting.runs)
    return 0


def _diverged_seeds(outcome: PanelOutcome, label: str) -> int:
    """At how many seeds a setting diverged: it will not be finished there."""
    count = 0
    for run in outcome.index.diverged:
        if outcome.index.labels.get(run) == label:
            count += 1
    return count


def _long_share_notes(outcome: PanelOutcome) -> list[str]:
    """What the costs say of the layers: the paper prints no shares, but its costs imply them."""
    said: list[str] = []
    for setting in outcome.comparison.settings:
        printed = outcome.printed(setting)
        if printed is None or printed.factor == 1:
            continue
        if not printed.cost or not setting.relative_cost:
            continue
        ours = long_share(setting.relative_cost, printed.factor)
        theirs = long_share(printed.cost / 100, printed.factor)

        said.append(
            f"{setting.label}'s cost is that of {percent(ours, 1)} of the parameters long all the time, the "
            f"paper's that of {percent(theirs, 1)}."
        )
    return said
