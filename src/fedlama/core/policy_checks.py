"""A policy and what it gives back, checked where it is given: it may be anybody's own.

What it keeps goes to checkpoints and to other processes, and its plans say which numbers are averaged. What is wrong
with either would otherwise show much later, far from the policy, or when a run is resumed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, cast

from fedlama.base import MAX_SIZE, InputError, check_made, check_whole, shown
from fedlama.core.layers import Layer
from fedlama.core.policy import (
    FROZEN,
    RECYCLED,
    Evidence,
    Policy,
    PolicyState,
    RoundPlan,
)

MAX_DEPTH = 100  # of lists and tables in each other
MAY_BE_USED = (*[field.name for field in fields(Evidence)], RECYCLED, FROZEN)


def check_policy(name: str, policy: object) -> None:
    """Raise InputError unless a value is a policy.

    Arguments:
        name: What it is called where it was given.
        policy: Anything.
    """
    check_made(name, policy, Policy, "fedlama.FedLAMA(…) or fedlama.FedAvg(…)")
    given = cast("Policy", policy)
    check_whole(f"{name}.base_interval", given.base_interval, minimum=1)
    # A product of two intervals may be beyond the limit of one.
    check_whole(
        f"{name}.longest_cycle",
        given.longest_cycle,
        minimum=1,
        maximum=MAX_SIZE,
    )
    uses: Any = given.uses
    if not isinstance(uses, Iterable) or isinstance(uses, str):
        raise InputError(f"{name}.uses must be a tuple of texts, not {shown(uses)}")
    for used in cast("Iterable[object]", uses):
        if used not in MAY_BE_USED:
            known = ", ".join(MAY_BE_USED)
            raise InputError(f"{name}.uses may name {known}, not {shown(used)}")


def start_checked(policy: Policy, layers: Sequence[Layer]) -> PolicyState:
    """A policy's state before the first step, which can be saved.

    Arguments:
        policy: Any.
        layers: The model's.
    """
    state = policy.start(layers)
    _check_state(
        policy,
        "start",
        state,
        layers=len(layers),
        step=0,
        round_=0,
    )
    check_own(policy, state.own)
    return state


def next_checked(
    policy: Policy, state: PolicyState, iterations: int, *, layers: int
) -> RoundPlan:
    """A policy's next round, which can be played.

    Arguments:
        policy: Any.
        state: Where the run stands.
        iterations: How many steps the whole run has.
        layers: How many layers the model has.
    """
    before = repr(state.own)
    plan = policy.next(state, iterations)
    # A round may be planned more often than it is played: what is counted here would depend on that.
    if repr(state.own) != before:
        kind = type(policy).__name__
        raise InputError(
            f"{kind} changes PolicyState.own in `next`, which only plans: change it in `observe`"
        )
    check_plan(policy, plan, steps_left=iterations - state.step, layers=layers)
    return plan


def observe_checked(
    policy: Policy,
    state: PolicyState,
    plan: RoundPlan,
    evidence: Evidence,
    layers: Sequence[Layer],
) -> PolicyState:
    """A policy's state after a round, from which a run can go on; the state before stays as it was.

    Arguments:
        policy: Any.
        state: Where the run stood before the round.
        plan: The round.
        evidence: What it showed.
        layers: The model's.
    """
    # A policy may change its own state in place. That before the round is somebody else's, too: a checkpoint's, or that
    # of a rehearsal.
    own_copy = deepcopy(state.own)
    handed = replace(state, own=own_copy)
    after = policy.observe(handed, plan, evidence, layers)
    _check_state(
        policy,
        "observe",
        after,
        layers=len(layers),
        step=state.step + plan.steps,
        round_=state.round + 1,
    )
    check_own(policy, after.own)
    return after


def _check_state(
    policy: Policy, method: str, state: object, *, layers: int, step: int, round_: int
) -> None:
    """Raise InputError unless a method returned a state at this step, with one entry per layer."""
    kind = type(policy).__name__
    if not isinstance(state, PolicyState):
        raise InputError(
            f"{kind} must return a PolicyState from `{method}`, not {shown(state)}"
        )
    per_layer: Mapping[str, object] = {
        "intervals": state.intervals,
        "discrepancy": state.discrepancy,
        "synchronised_at": state.synchronised_at,
    }
    for name, entries in per_layer.items():
        if _length(entries) != layers:
            raise InputError(
                f"{kind} returns a state from `{method}` whose {name} has not one entry for each of the {layers} "
                f"layers: {shown(entries)}"
            )
    # Whoever does not count plans the same round for ever.
    if (state.step, state.round) != (step, round_):
        raise InputError(
            f"{kind} returns a state of step {shown(state.step)} and round {shown(state.round)} from `{method}`, and "
            f"the run is at step {step:,} and round {round_:,}: fedlama.core.advance counts both"
        )


def _length(entries: object) -> int | None:
    if isinstance(entries, Sequence):
        return len(cast("Sequence[object]", entries))
    return None


def check_own(policy: Policy, own: object, *, saved: bool = False) -> None:
    """Raise InputError unless JSON gives back what a policy keeps; only tuples may come back as lists.

    Arguments:
        policy: Whose it is.
        own: What it keeps, as in `PolicyState.own`.
        saved: Whether it is about to be saved: then its numbers must be finite, too. A training that diverges may
            bring others, and is to be told what it is.
    """
    wrong = _not_plain(own, saved, depth=0)
    if wrong is not None:
        kind = type(policy).__name__
        raise InputError(
            f"{kind} keeps {wrong} in PolicyState.own, which must be plain JSON: None, True, False, numbers, texts, "
            f"lists of them and dicts with texts as keys"
        )


def _not_plain(value: Any, saved: bool, depth: int) -> str | None:
    """What is no plain JSON in a value, in words; None if all of it is."""
    if value is None or isinstance(value, bool | int | str):
        return None
    if isinstance(value, float):
        if saved and not math.isfinite(value):
            return shown(value)
        return None
    if depth == MAX_DEPTH:
        return f"lists or dicts more than {MAX_DEPTH} deep"

    inside: Iterable[Any]
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        for key in entries:
            if not isinstance(key, str):
                return f"the key {shown(key)}"
        inside = entries.values()
    elif isinstance(value, list | tuple):
        inside = cast("Sequence[Any]", value)
    else:
        return f"a value of type {type(value).__name__}"
    for entry in inside:
        wrong = _not_plain(entry, saved, depth + 1)
        if wrong is not None:
            return wrong
    return None


def check_plan(policy: Policy, plan: object, *, steps_left: int, layers: int) -> None:
    """Raise InputError unless a planned round can be played.

    Arguments:
        policy: Whose plan it is.
        plan: The round.
        steps_left: How many steps the run still has.
        layers: How many layers the model has.
    """
    kind = type(policy).__name__
    if not isinstance(plan, RoundPlan):
        raise InputError(
            f"{kind} must return a RoundPlan from `next`, not {shown(plan)}"
        )
    # Whole numbers of numpy are welcome, too
    steps: object = plan.steps
    is_length = isinstance(steps, numbers.Integral) and 1 <= steps <= steps_left
    if not is_length:
        raise InputError(
            f"{kind} plans a round of {shown(steps)} steps: it must have at least one, and no more than the "
            f"{steps_left:,} that are left"
        )
    _check_layers(kind, "average", plan.due, layers)
    _check_layers(kind, "recycle", plan.recycled, layers)
    _check_layers(kind, "train", plan.trained or (), layers)
    for number in plan.recycled:
        if number in plan.due:
            raise InputError(
                f"{kind} plans to average and to recycle layer {number}: it is either of them"
            )
    # Both ask for more than the average: the server keeps a row, and not every runtime can freeze layers.
    if plan.recycled and RECYCLED not in policy.uses:
        raise InputError(
            f"{kind} plans to recycle layers, and its `uses` must name '{RECYCLED}' for that"
        )
    if plan.trained is not None and FROZEN not in policy.uses:
        raise InputError(
            f"{kind} plans to train some layers only, and its `uses` must name '{FROZEN}' for that"
        )


def _check_layers(
    kind: str, what: str, some_layers: Sequence[object], layers: int
) -> None:
    """Raise InputError unless these are layers of the model, each of them once."""
    seen: set[object] = set()
    for number in some_layers:
        is_there = isinstance(number, numbers.Integral) and number in range(layers)
        if not is_there:
            raise InputError(
                f"{kind} plans to {what} layer {shown(number)}, and there are {layers}, counted from 0"
            )
        if number in seen:
            raise InputError(f"{kind} plans to {what} layer {number} twice in a round")
        seen.add(number)
