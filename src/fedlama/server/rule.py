"""The door for server rules: what the server makes of an average before it becomes the new global model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from fedlama.rows import Slot


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
