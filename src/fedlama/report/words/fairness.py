"""Whose samples clients were judged by, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.report.numbers.fairness import Fairness


def fairness_sentence(found: Sequence[Fairness]) -> str:
    """Whose samples these are; those that were trained on flatter."""
    on = {one.on for one in found}
    if on == {"test"}:
        return "The global model is tested on each client's own test samples."
    if on == {"training"}:
        return (
            "The data does not say whose its test samples are, so the global model is judged by each client's own "
            "training samples, which flatters it."
        )
    return (
        "Some settings are tested on the clients' own test samples, others on their training samples: "
        "do not compare."
    )
