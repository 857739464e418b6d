"""What a strategy is given, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedlama.compress import Codec
from fedlama.core import Policy, policy_within
from fedlama.local import LocalRule
from fedlama.rows import Grouping
from fedlama.server import ServerRule
from fedlama.server.tolerance import Tolerance
from fedlama.training.participation import Participation


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `LayerwiseStrategy`, with what it takes where one is left out."""

    policy: Policy
    server: ServerRule
    local: LocalRule | None
    uplink: Codec | None
    downlink: Codec | None
    participation: Participation
    weights: str
    max_samples: int | None
    tolerance: Tolerance
    deadline: float
    wait: float
    seed: int
    layers: Grouping
    adaptive: Sequence[str] | None
    evaluate_every: int | None

    @property
    def deciding_policy(self) -> Policy:
        """The policy as it decides in a run with this window."""
        return policy_within(self.policy, self.participation.window)

    @property
    def rule_name(self) -> str:
        """The local rule that the server takes part in, as clients compare it with theirs; empty for none."""
        if self.local is None:
            return ""
        return repr(self.local)
