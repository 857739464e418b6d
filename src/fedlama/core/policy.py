"""Algorithm 1 as a protocol: what is due after which steps, and what a policy learns from a round.

A policy is a frozen value. Where a run stands is a frozen `PolicyState`, which the policy makes, advances and never
keeps. `next` plans a round: how many steps to train and which layers to average after them. `observe` takes what was
measured in that round, the `Evidence`, and returns the next state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from fedlama.base import with_tuples
from fedlama.core.layers import Layer


@dataclass(frozen=True)
class RoundPlan:
    """One round: train, then average the layers that are due.

    Arguments:
        steps: How many steps to train.
        due: The layers that are averaged then, by number.
        cycle: The global steps of the cycle that the round belongs to.
        ends_cycle: Whether all copies of every layer are equal after the round, so that the global model is whole.
        adjusts: Whether the policy may change its mind after it: not where the end of the run cut the cycle short.
        recycled: Layers that are not uploaded: the server changes them as it changed them at their last average, and
            every client gets the result.
        trained: The only layers that clients train; they leave all others as they are (default: all are trained).
    """

    steps: int
    due: tuple[int, ...]
    cycle: range
    ends_cycle: bool
    adjusts: bool = False
    recycled: tuple[int, ...] = ()
    trained: tuple[int, ...] | None = None

    @property
    def renewed(self) -> tuple[int, ...]:
        """The layers that have a new value after the round, the same for every client."""
        layers = {*self.due, *self.recycled}
        return tuple(sorted(layers))


@dataclass(frozen=True)
class Evidence:
    """What a round showed, for each layer that was due.

    A policy names in `uses` what it looks at, and only that is measured.

    Arguments:
        spread: Σ_i w_i ‖u_l − x_l^i‖², the numerator of Eq. 2.
        moved: ‖y_l − a_l‖², where a_l is the layer's value after the synchronisation before and y_l that after this
            one: the average u_l as the rules and the code of the downlink changed it.
        norm: ‖a_l‖².
        sent: Bytes as encoded, summed over the clients that were averaged.
        clients: How many were averaged.
    """

    spread: Mapping[int, float]
    moved: Mapping[int, float] = field(default_factory=dict[int, float])
    norm: Mapping[int, float] = field(default_factory=dict[int, float])
    sent: Mapping[int, int] = field(default_factory=dict[int, int])
    clients: int = 0


@dataclass(frozen=True)
class PolicyState:
    """Where a run stands: everything that a policy needs to go on, and nothing else.

    Arguments:
        intervals: τ_l of every layer, in steps.
        discrepancy: d_l of Eq. 2, the latest of every layer.
        synchronised_at: The global step after which each layer was last averaged.
        step: Global steps taken so far.
        round: Rounds played so far.
        cycle: Cycles finished so far.
        cycle_start: The global step after which this cycle began.
        own: What the policy itself keeps, in plain JSON: it is saved and restored by those who do not know it. That
            is checked (`core/policy_checks.py`); tuples may come back as lists.
    """

    intervals: tuple[int, ...]
    discrepancy: tuple[float, ...]
    synchronised_at: tuple[int, ...]
    step: int = 0
    round: int = 0
    cycle: int = 0
    cycle_start: int = 0
    own: Any = None

    @staticmethod
    def at_start(intervals: Sequence[int], own: Any = None) -> PolicyState:
        """The state before the first step: no layer has drifted yet, and all copies are equal.

        Arguments:
            intervals: τ_l of every layer, in steps.
            own: What the policy itself keeps, if anything.
        """
        count = len(intervals)
        return PolicyState(
            intervals=tuple(intervals),
            discrepancy=(0.0,) * count,
            synchronised_at=(0,) * count,
            own=own,
        )

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> PolicyState:
        """Back from what JSON makes of it, where tuples are lists.

        Arguments:
            values: The fields by name.
        """
        restored = with_tuples(values)
        restored["own"] = values.get("own")
        return PolicyState(**restored)


RECYCLED = "recycled"
FROZEN = "frozen"


@runtime_checkable
class Policy(Protocol):
    """Decides which layers are averaged when.

    `base_interval` is τ', the shortest interval that costs are measured against. `longest_cycle` is the most steps that
    can lie between two moments at which all layers are averaged; a cohort stays for a whole number of them. `uses`
    names what it asks of the server beside `spread`: other fields of the evidence, `RECYCLED` if its rounds may
    recycle, for which the server keeps the last change of every layer, and `FROZEN` if they may train some layers only,
    which not every runtime can do.

    Two parts are optional, so that policies without them are policies all the same: where intervals may be shorter than
    `base_interval`, a policy is `Shortening`, too; where a cohort may stay for less than a cycle, `Windowed`.
    """

    @property
    def base_interval(self) -> int:
        """τ', in steps."""
        ...

    @property
    def longest_cycle(self) -> int:
        """The most steps between two moments at which all layers are averaged."""
        ...

    @property
    def uses(self) -> tuple[str, ...]:
        """What it asks of the server beside `spread`."""
        ...

    def start(self, layers: Sequence[Layer]) -> PolicyState:
        """The state before the first step.

        Arguments:
            layers: The model's.
        """
        ...

    def next(self, state: PolicyState, iterations: int) -> RoundPlan:
        """The next round.

        Arguments:
            state: Where the run stands.
            iterations: How many steps the whole run has.
        """
        ...

    def observe(
        self,
        state: PolicyState,
        plan: RoundPlan,
        evidence: Evidence,
        layers: Sequence[Layer],
    ) -> PolicyState:
        """The state after a round that went as planned.

        Arguments:
            state: Where the run stood before it; its `own` is a copy, which may be changed in place and returned.
            plan: The round.
            evidence: What it showed.
            layers: The model's.
        """
        ...


@runtime_checkable
class Shortening(Protocol):
    """What a policy is beside, if a layer's interval may be shorter than `base_interval`."""

    @property
    def shortest_interval(self) -> int:
        """The fewest steps that a layer's interval may have."""
        ...


def shortest_interval(policy: Policy) -> int:
    """The fewest steps that a layer's interval may have: the base interval, unless the policy says otherwise.

    Arguments:
        policy: Any; one that is not `Shortening` says nothing.
    """
    if isinstance(policy, Shortening):
        return policy.shortest_interval
    return policy.base_interval


@runtime_checkable
class Windowed(Protocol):
    """What a policy is beside, if a cohort may stay for other windows than whole numbers of its cycles."""

    def within(self, window: int) -> Policy:
        """The policy with the same schedule whose cycles fit into such a window, or itself where there is none.

        Arguments:
            window: For how many steps a cohort stays.
        """
        ...


def policy_within(policy: Policy, window: int | None) -> Policy:
    """The policy that decides in a run with this window: itself, unless it says otherwise.

    Arguments:
        policy: Any; one that is not `Windowed` says nothing.
        window: For how many steps a cohort stays; None for one cycle.
    """
    if window is not None and isinstance(policy, Windowed):
        return policy.within(window)
    return policy


def asks_for_movement(policy: Policy) -> bool:
    """Whether a policy looks at how far layers moved, or how large they are: then the model before the round is needed.

    Arguments:
        policy: Any.
    """
    return "moved" in policy.uses or "norm" in policy.uses
