"""FedPart: "Why Go Full? Elevating Federated Learning Through Partial Network Updates", NeurIPS 2024
(arXiv 2410.11559).

As in the released code: `full_rounds` rounds train and average the whole model, then each group of layers, from the
shallow to the deep, is the only one that is trained and averaged for `group_rounds` rounds; then it begins again.

Where ours differs: a round is `interval` steps, not 8 epochs, and clients train with the run's local rule, not with
Adam. Clients still compute the gradients of frozen layers, which are then not used. BatchNorm's statistics go on in
frozen layers, too, and are averaged in every round. Momentum of a frozen layer rests and is taken up again within a
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fedlama.base import InputError, Limits, check_options, shown
from fedlama.core.layers import Layer
from fedlama.core.policies.patterns import pattern_of_each
from fedlama.core.policy import (
    FROZEN,
    Evidence,
    PolicyState,
    RoundPlan,
)
from fedlama.core.rounds import advance, plan_by_intervals


@dataclass(frozen=True)
class FedPart:
    """Rounds of full updates, then one group of layers after the other is trained and averaged alone.

    Arguments:
        interval: How many steps lie between two rounds.
        groups: One pattern of layers' names for each group, in the order in which they are trained, or a number of
            groups of about as many kernels each (default: one group for each kernel). A layer without a kernel
            belongs to the kernel before it, and so does one that no pattern matches to the group before it.
        full_rounds: How many rounds train the whole model before the first group's turn comes.
        group_rounds: How many rounds in a row train one group.
    """

    interval: Annotated[int, Limits(minimum=1)]
    groups: int | tuple[str, ...] | None = None
    full_rounds: Annotated[int, Limits(minimum=0)] = 5
    group_rounds: Annotated[int, Limits(minimum=1)] = 2

    def __post_init__(self) -> None:
        check_options(self)
        if isinstance(self.groups, int):
            check_options(_Count(self.groups))
        elif isinstance(self.groups, str):
            raise InputError(
                f"groups must be a list of patterns or a number of groups, not {shown(self.groups)}"
            )
        elif self.groups is not None:
            object.__setattr__(self, "groups", _patterns(self.groups))

    @property
    def base_interval(self) -> int:
        """The interval: FedAvg at it is the 100 % of costs."""
        return self.interval

    @property
    def longest_cycle(self) -> int:
        """After every round all copies of all layers are equal: what is not averaged was not trained."""
        return self.interval

    @property
    def uses(self) -> tuple[str, ...]:
        """Nothing of the evidence: the schedule is fixed."""
        return (FROZEN,)

    def start(self, layers: Sequence[Layer]) -> PolicyState:
        """The state before the first step."""
        own = {"groups": self.members(layers)}
        return PolicyState.at_start([self.interval] * len(layers), own)

    def members(self, layers: Sequence[Layer]) -> list[list[int]]:
        """The layers of each group.

        Arguments:
            layers: The model's.
        """
        if isinstance(self.groups, tuple):
            return _by_pattern(self.groups, layers)
        kernels = sum(layer.adaptive for layer in layers)

        # A model without a kernel is one group.
        max_groups = max(1, kernels)
        count = self.groups or max_groups
        if count > max_groups:
            raise InputError(
                f"policy.groups must be at most the number of adaptive layers, {kernels}, not {count}"
            )
        return _by_number(count, max_groups, layers)

    def next(self, state: PolicyState, iterations: int) -> RoundPlan:
        """The next round of a run of `iterations` steps: FedAvg's, or one of a group alone."""
        plan = plan_by_intervals(state, iterations, self.interval)
        groups: list[list[int]] = state.own["groups"]
        partial_rounds = self.group_rounds * len(groups)
        turn = state.round % (self.full_rounds + partial_rounds)
        if turn < self.full_rounds:
            return plan

        partial_turn = turn - self.full_rounds
        group = tuple(groups[partial_turn // self.group_rounds])
        # All copies of all layers are equal afterwards: nobody trained the others.
        return replace(plan, due=group, trained=group)

    def observe(
        self,
        state: PolicyState,
        plan: RoundPlan,
        evidence: Evidence,
        layers: Sequence[Layer],
    ) -> PolicyState:
        """The state after a round."""
        return advance(state, plan, evidence, layers)

    def __str__(self) -> str:
        groups = self.groups
        if groups is None:
            return f"FedPart({self.interval})"
        count = groups
        if not isinstance(count, int):
            count = len(count)
        if count == 1:
            return f"FedPart({self.interval}, 1 group)"
        return f"FedPart({self.interval}, {count} groups)"


def _patterns(given: Any) -> tuple[str, ...]:
    """A list of texts, as it may be given from elsewhere, as a tuple."""
    try:
        patterns = tuple(given)
    except TypeError:
        raise InputError(
            f"groups must be a list of patterns or a number of groups, not {shown(given)}"
        ) from None
    if not patterns:
        raise InputError("groups must have at least one pattern")
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise InputError(
                f"groups must have patterns of layers' names, which are texts, not {shown(pattern)}"
            )
    return patterns


@dataclass(frozen=True)
class _Count:
    """A number of groups."""

    groups: Annotated[int, Limits(minimum=1)]


def _by_number(count: int, kernels: int, layers: Sequence[Layer]) -> list[list[int]]:
    """The k-th of all kernels falls into group ⌊k · count / kernels⌋; the vectors behind a kernel go with it."""
    groups: list[list[int]] = [[] for _ in range(count)]
    kernel = -1
    for index, layer in enumerate(layers):
        if layer.adaptive:
            kernel += 1
        # Vectors before the first kernel go with it, too.
        latest = max(kernel, 0)
        group = groups[latest * count // kernels]
        group.append(index)
    return groups


def _by_pattern(patterns: Sequence[str], layers: Sequence[Layer]) -> list[list[int]]:
    """The first pattern that a layer's name matches is its group."""
    own = pattern_of_each("policy.groups", patterns, layers)
    groups: list[list[int]] = [[] for _ in patterns]
    latest = 0
    for index, number in enumerate(own):
        # One that matches nothing belongs to the group before it.
        if number is not None:
            latest = number
        groups[latest].append(index)
    return groups
