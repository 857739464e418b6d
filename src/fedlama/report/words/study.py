"""What a study's index says: how learning rates were chosen, and which runs diverged."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from fedlama.base import DivergenceError, printable
from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.words.formats import joined
from fedlama.study.index import StudyIndex

FIRST_STEP = re.compile(r" \(from step \d+\)$")


def choice_notes(index: StudyIndex) -> list[str]:
    """How learning rates were chosen, and where the grid was too narrow."""
    if not index.choices:
        return []

    # Settings may have been tried at different rates.
    tried: set[str] = set()
    for choice in index.choices.values():
        tried.update(choice.scores)

    rates = ", ".join(sorted(tried, key=float))
    found = [
        f"Learning rates were chosen by pilots on a validation split, out of {rates}."
    ]

    for label, choice in index.choices.items():
        if choice.rate is None:
            found.append(
                f"{label} diverged at every learning rate that was tried ({', '.join(choice.scores)})."
            )

    edges = [label for label, choice in index.choices.items() if choice.at_edge]
    if edges:
        found.append(
            f"At the edge of the rates tried, so that another may be better: {', '.join(edges)}."
        )
    return found


def divergence_notes(index: StudyIndex, comparison: RunComparison) -> list[str]:
    """A sentence for every setting of which a run diverged: at which seeds, in which round and why.

    Arguments:
        index: the study's.
        comparison: its runs; the means of settings that are finished are over the others.
    """
    finished = {setting.label for setting in comparison.settings if setting.finished}
    found: list[str] = []
    for label in dict.fromkeys(index.labels.values()):
        seeds: list[str] = []
        for run, reason in index.diverged.items():
            if index.labels.get(run) == label:
                seeds.append(f"{_seed_of(run)} ({_cause(reason)})")
        if not seeds:
            continue

        sentence = f"{label} diverged at {joined(seeds)}"
        if label in finished:
            which = "that run is"
            if len(seeds) > 1:
                which = "those runs are"
            sentence += f"; {which} left out of its means"
        found.append(f"{sentence}.")
    return found


def _seed_of(run: str) -> str:
    """`seed 1` of `fedlama-6-4/seed1`."""
    folder = PurePosixPath(run).name
    seed = folder.removeprefix("seed")
    return f"seed {printable(seed)}"


def _cause(reason: str) -> str:
    """What a run wrote down when it diverged, without what to do and without the step: the round says when."""
    cause = DivergenceError.cause_in(reason)
    return printable(FIRST_STEP.sub("", cause))
