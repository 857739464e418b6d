"""FedLAMA and FedAvg: Lee, Zhang, He and Avestimehr, "Layer-wise Adaptive Model Aggregation for Scalable Federated
Learning", AAAI 2023, Algorithms 1 and 2; McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, Signature
from typing import Annotated, TypeVar

from fedlama.base import Limits, Positive, check_options
from fedlama.core.interval_checks import Variant, check_intervals
from fedlama.core.intervals import adjust_intervals
from fedlama.core.layers import Layer
from fedlama.core.policy import (
    Evidence,
    PolicyState,
    RoundPlan,
)
from fedlama.core.rounds import advance, plan_by_intervals

P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class FedLAMA:
    """The paper's policy: layers that drift least are averaged every `increase_factor · base_interval` steps.

    Arguments:
        base_interval: τ', the interval at which every layer starts, in steps.
        increase_factor: φ, how many times longer the interval of a layer that drifts little becomes.
        rule: Which variant of Algorithm 2 chooses the layers; see `fedlama.adjust_intervals`.
        warmup_rounds: The first adjustment is made at the first cycle end at or after this round.
    """

    base_interval: Positive
    increase_factor: Annotated[int, Limits(minimum=1)]
    rule: Variant = "crossing"
    warmup_rounds: Annotated[int, Limits(minimum=0)] = 0

    def __post_init__(self) -> None:
        check_options(self)
        check_intervals(self.base_interval, self.increase_factor, self.rule)

    @property
    def uses(self) -> tuple[str, ...]:
        """Nothing but the spread."""
        return ()

    @property
    def longest_cycle(self) -> int:
        """Steps after which every layer has been averaged: φτ', or τ' where intervals are only shortened."""
        if self.rule == "accelerate":
            return self.base_interval
        return self.base_interval * self.increase_factor

    @property
    def shortest_interval(self) -> int:
        """τ', or τ'/φ where intervals are shortened."""
        if self.rule == "accelerate":
            return self.base_interval // self.increase_factor
        return self.base_interval

    @property
    def is_fedavg(self) -> bool:
        """Whether every layer is averaged every τ' steps, whatever the rule: φ = 1."""
        return self.increase_factor == 1

    def start(self, layers: Sequence[Layer]) -> PolicyState:
        """The state before the first step: every layer at τ' (Algorithm 1, line 1)."""
        return PolicyState.at_start([self.base_interval] * len(layers))

    def next(self, state: PolicyState, iterations: int) -> RoundPlan:
        """The next round of a run of `iterations` steps: it lasts until the next layer falls due."""
        return plan_by_intervals(state, iterations, self.longest_cycle)

    def observe(
        self,
        state: PolicyState,
        plan: RoundPlan,
        evidence: Evidence,
        layers: Sequence[Layer],
    ) -> PolicyState:
        """The state after a round; the intervals are adjusted at a cycle's end."""
        after = advance(state, plan, evidence, layers)
        if not plan.adjusts or after.round < self.warmup_rounds:
            return after
        # Algorithm 1, line 11
        intervals = adjust_intervals(
            after.discrepancy,
            [layer.size for layer in layers],
            base_interval=self.base_interval,
            increase_factor=self.increase_factor,
            adaptive=[layer.adaptive for layer in layers],
            current=after.intervals,
            rule=self.rule,
        )
        return replace(after, intervals=tuple(intervals))

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FedLAMA):
            return NotImplemented
        # FedAvg(6) is FedLAMA(6, 1). What a subclass does is its own, so it equals only its own kind.
        one = canonical(self)
        another = canonical(other)
        if type(one) is not type(another):
            return NotImplemented
        return one._values() == another._values()

    def __hash__(self) -> int:
        own = canonical(self)
        # Of a subclass's other fields there may be some without a hash.
        return hash((own.base_interval, own.increase_factor, own.rule))

    def __str__(self) -> str:
        variant = ""
        if self.rule != "crossing":
            variant = f", {self.rule}"
        return f"FedLAMA({self.base_interval}, {self.increase_factor}{variant})"


@dataclass(frozen=True, eq=False, init=False)
class FedAvg(FedLAMA):
    """The whole model every `interval` steps: FedLAMA with factor 1, bit for bit.

    Arguments:
        interval: How many steps lie between two averages.
    """

    # Not shown: the constructor takes none of them.
    increase_factor: int = field(default=1, init=False, repr=False)
    rule: Variant = field(default="crossing", init=False, repr=False)
    warmup_rounds: int = field(default=0, init=False, repr=False)

    # What the constructor shows; it takes the field's name as well, by which dataclasses.replace calls it.
    __signature__ = Signature(
        [Parameter("interval", Parameter.POSITIONAL_OR_KEYWORD, annotation=int)]
    )

    def __init__(
        self, interval: int | None = None, *, base_interval: int | None = None
    ) -> None:
        if interval is not None and base_interval is not None:
            raise TypeError("FedAvg() got multiple values for argument 'interval'")
        given = interval
        if given is None:
            given = base_interval
        if given is None:
            raise TypeError("FedAvg() needs an interval")
        object.__setattr__(self, "base_interval", given)
        self.__post_init__()

    def __str__(self) -> str:
        return f"FedAvg({self.base_interval})"


def canonical(policy: P) -> P | FedAvg:
    """FedAvg where FedLAMA has factor 1, whose rule then changes nothing; any other policy as it is.

    Arguments:
        policy: Any; a class derived from FedLAMA may do something else with factor 1.
    """
    if type(policy) is FedLAMA and policy.is_fedavg:
        return FedAvg(policy.base_interval)
    return policy
