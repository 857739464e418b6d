"""What a study's index says: how learning rates were chosen, and which runs diverged."""

from __future__ import annotations

from fedlama.study.index import StudyIndex


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


def divergence_notes(index: StudyIndex) -> list[str]:
    """A sentence for every setting of which a run diverged."""
    found: list[str] = []
    for label in dict.fromkeys(index.labels.values()):
        reasons: list[str] = []
        for run, reason in index.diverged.items():
            if index.labels.get(run) == label:
                reasons.append(reason)
        if reasons:
            found.append(
                f"{label}: {len(reasons)} of its runs diverged ({reasons[0]})."
            )
    return found
