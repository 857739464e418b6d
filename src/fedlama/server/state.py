"""Where the server stands after a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from fedlama.core import Ledger, Message, PolicyState

# The slot that low-rank codes start from, and that policies recycle
LAST_CHANGE = "last change"
# The slot with a moving average of the global model, which may be evaluated in its place or beside it
AVERAGE = "moving average"


@dataclass(frozen=True)
class ServerState:
    """Where the server stands after a round; none of its rows is ever written to.

    Arguments:
        policy_state: Where the policy stands.
        ledger: Aggregations and bytes so far.
        row: The global model. Every layer is as it was last synchronised, so it is the anchor of what refers to that.
        slots: What rules and codecs keep on the server, a row for each name.
        broadcast: What a client that stays downloads before its next round.
    """

    policy_state: PolicyState
    ledger: Ledger
    row: Tensor
    slots: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    broadcast: Message = field(default_factory=Message)

    @property
    def step(self) -> int:
        """Global steps taken so far."""
        return self.policy_state.step

    @property
    def average(self) -> Tensor | None:
        """The moving average of the global model, where one is kept."""
        return self.slots.get(AVERAGE)
