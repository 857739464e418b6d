"""State with a name and a lifetime: what a rule or a codec keeps beside the model, as rows of the model's width.

Checkpoints, the memory estimate and worker processes handle slots without knowing who uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

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

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise InputError(f"a slot's name must be a text, not {shown(name)}")
        # Anything else would be forgotten when a window ends, like "window", whatever was meant.
        lifetimes = get_args(Lifetime)
        if self.lifetime not in lifetimes:
            allowed = " or ".join(map(repr, lifetimes))
            raise InputError(
                f"the lifetime of slot {shown(name)} must be {allowed}, not {shown(self.lifetime)}"
            )


def check_slots(name: str, slots: object) -> None:
    """Raise InputError unless a rule of the user's own names its slots as slots.

    Arguments:
        name: What they are called where the rule was given, such as server.slots.
        slots: Anything.
    """
    example = "such as (Slot('velocity', 'run'),) with fedlama.rows.Slot"
    if isinstance(slots, str) or not isinstance(slots, Iterable):
        raise InputError(
            f"{name} must be a tuple of slots, {example}, not {shown(slots)}"
        )
    for slot in cast("Iterable[object]", slots):
        if not isinstance(slot, Slot):
            raise InputError(f"{name} must hold slots, {example}, not {shown(slot)}")


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
