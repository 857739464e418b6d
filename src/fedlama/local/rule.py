"""The door for local rules: what a client does with a gradient, and what it keeps, sends and is sent beside the model.

Between its synchronisations a layer refers to its last synchronised value, the anchor: `server["model"]` has every
layer as it was last averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast, runtime_checkable

from torch import Tensor

from fedlama.base import InputError, check_made, shown
from fedlama.local.steps import StepsOption
from fedlama.rows import Slot, check_slots

MODEL = "model"  # the anchor's name among the server's rows

# For every client that is averaged: its weight, and how many steps it took
Taken = Sequence[tuple[float, int]]


@runtime_checkable
class LocalRule(Protocol):
    """A frozen value; what it remembers lives in slots, one row of the model's width for each name.

    `slots` names what each client keeps, `server_slots` what the server keeps for this rule, and `sends` which of the
    latter every client is sent with the model. All rows start as zeros. Methods work on one stretch of a row, or on
    such stretches of several clients at once: [width] or [clients, width].

    What is called `server` or `anchor` is read-only: those are the server's rows themselves, which all clients share. A
    rule that writes to one of them is refused after the round.
    """

    @property
    def batch_size(self) -> int:
        """Samples per step."""
        ...

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What each client keeps."""
        ...

    @property
    def server_slots(self) -> tuple[Slot, ...]:
        """What the server keeps for this rule."""
        ...

    @property
    def sends(self) -> tuple[str, ...]:
        """The server slots that every client is sent with the model."""
        ...

    @property
    def steps(self) -> StepsOption:
        """How many steps a client takes per base interval, where that is not the interval itself."""
        ...

    def rate(self, step: int) -> float:
        """The learning rate at a global step, counted from 0.

        Arguments:
            step: The global step.
        """
        ...

    def step(
        self,
        row: Tensor,
        gradient: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
        *,
        rate: float,
        kernels: Tensor,
    ) -> None:
        """One local step, in place; `gradient` may be written to.

        Arguments:
            row: The client's numbers.
            gradient: Their gradient.
            own: The client's slots for these numbers.
            server: What the server sent, read-only: the anchor under "model", and the rows named in `sends`.
            rate: The learning rate of this step.
            kernels: 1 where a number belongs to a kernel, 0 elsewhere.
        """
        ...

    def sync(
        self,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
        *,
        steps: range,
        taken: Tensor,
    ) -> None:
        """At a layer's synchronisation, on the client and before it uploads: update its slots, or what it sends.

        Arguments:
            row: The client's numbers of the layer.
            own: The client's slots for them.
            server: What the server sent, read-only.
            steps: The global steps since the layer's last synchronisation.
            taken: How many steps the client took itself in that time, [1] or [clients, 1]; read-only, as other layers
                share it.
        """
        ...

    def merge(
        self,
        anchor: Tensor,
        mean: Tensor,
        own: Mapping[str, Tensor],
        *,
        steps: range,
        taken: Taken,
        share: float,
    ) -> Tensor:
        """At a layer's synchronisation, on the server: update its slots; the value that goes on to the server's rule.

        Arguments:
            anchor: The layer as it was last synchronised, read-only.
            mean: The average of what the clients sent; it may be written to and returned.
            own: The server's slots for these numbers, to be updated in place.
            steps: The global steps since the layer's last synchronisation.
            taken: The weight of every client, and how many steps it took in that time.
            share: Which share of the whole population was averaged.
        """
        ...


def check_local_rule(name: str, rule: object, example: str = "fedlama.SGD(…)") -> None:
    """Raise InputError unless a value is a local rule that names its slots, and sends only what the server keeps.

    Arguments:
        name: What it is called where it was given.
        rule: Anything.
        example: What makes one, for the sentence.
    """
    check_made(name, rule, LocalRule, example)
    own = cast("LocalRule", rule)
    check_slots(f"{name}.slots", own.slots)
    check_slots(f"{name}.server_slots", own.server_slots)
    kept = [slot.name for slot in own.server_slots]
    for sent in own.sends:
        if sent not in kept:
            names = ", ".join(map(shown, kept)) or "none"
            raise InputError(
                f"{name}.sends must name slots of {name}.server_slots ({names}), not {shown(sent)}"
            )
