"""The door for server rules: what the server makes of an average before it becomes the new global model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable

from torch import Tensor

from fedlama.base import InputError, check_made, shown
from fedlama.rows import Slot, check_slots


@runtime_checkable
class ServerRule(Protocol):
    """A frozen value; what it remembers lives in server slots, one row of the model's width for each name.

    `slots` names what it keeps; the rows start as zeros.
    """

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What the rule keeps on the server."""
        ...

    def apply(
        self,
        anchor: Tensor,
        mean: Tensor,
        own: Mapping[str, Tensor],
        *,
        count: int,
        periods: float,
    ) -> Tensor:
        """The new value of one due layer, or of one tensor of it.

        Arguments:
            anchor: What the layer was after its synchronisation before, which is read-only: it is the server's row
                itself, and policies and codes refer to it after the rule. A rule that writes to it is refused.
            mean: The clients' average; it may be written to and returned.
            own: This rule's slots for these numbers, to be updated in place.
            count: κ_l, how often the layer was synchronised before.
            periods: τ_l/τ', the steps since then in units of the base interval: what slots keep is counted in steps.
        """
        ...


def check_server_rule(name: str, rule: object) -> None:
    """Raise InputError unless a value is a server rule, and names its slots as slots.

    Arguments:
        name: What it is called where it was given.
        rule: Anything.
    """
    check_made(name, rule, ServerRule, "fedlama.server.Mean()")
    own = cast("ServerRule", rule)
    check_slots(f"{name}.slots", own.slots)


def check_result(rule: object, method: str, value: object, like: Tensor) -> None:
    """Raise InputError unless a rule gave back as many numbers as it was given.

    Arguments:
        rule: Any.
        method: What was called.
        value: What it returned. One number would become all numbers of a layer, without a word.
        like: What it was given.
    """
    if isinstance(value, Tensor) and value.shape == like.shape:
        return
    kind = type(rule).__name__
    given = shown(value)
    if isinstance(value, Tensor):
        given = f"one of shape {tuple(value.shape)}"
    raise InputError(
        f"{kind} must return a tensor of shape {tuple(like.shape)} from `{method}`, not {given}"
    )
