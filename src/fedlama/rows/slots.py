"""State with a name and a lifetime: what a rule or a codec keeps beside the model, as rows of the model's width.

Checkpoints, the memory estimate and worker processes handle slots without knowing who uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedlama.base import InputError, shown

Lifetime = Literal["window", "run"]


@dataclass(frozen=True)
class Slot:
    """One row of numbers per client, or one for the server, that starts as zeros.

    Arguments:
        name: Unique among the slots of a run.
        lifetime: "window": it is forgotten when a cohort leaves. "run": it is kept for a client until it returns.
        without: How to do without it, where memory is scarce: a part of a sentence.
    """

    name: str
    lifetime: Lifetime = "window"
    without: str = ""


def distinct(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """These slots, or a refusal where two have one name: they would share a row without a word."""
    names: set[str] = set()
    for slot in slots:
        if slot.name in names:
            raise InputError(
                f"two of the rules and codecs of this run keep a slot called {shown(slot.name)}: rename one"
            )
        names.add(slot.name)
    return tuple(slots)
