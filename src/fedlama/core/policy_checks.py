"""A policy and what it gives back, checked where it is given: it may be anybody's own.

What it keeps goes to checkpoints and to other processes, and its plans say which numbers are averaged. What is wrong
with either would otherwise show much later, far from the policy, or when a run is resumed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from fedlama.base import InputError, check_made, shown
from fedlama.core.layers import Layer
from fedlama.core.policy import Policy, PolicyState, RoundPlan

MAX_DEPTH = 100  # of lists and tables in each other


def check_policy(name: str, policy: object) -> None:
    """Raise InputError unless a value is a policy.

    Arguments:
        name: What it is called where it was given.
        policy: Anything.
    """
    check_made(name, policy, Policy, "fedlama.FedLAMA(…) or fedlama.FedAvg(…)")


def start_checked(policy: Policy, layers: Sequence[Layer]) -> PolicyState:
    """A policy's state before the first step, which can be saved.

    Arguments:
        policy: Any.
        layers: The model's.
    """
    state = policy.start(layers)
    check_own(policy, state.own)
    return state


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


def check_plan(
    policy: Policy, plan: RoundPlan, *, steps_left: int, layers: int
) -> None:
    """Raise InputError unless a planned round can be played.

    Arguments:
        policy: Whose plan it is.
        plan: The round.
        steps_left: How many steps the run still has.
        layers: How many layers the model has.
    """
    kind = type(policy).__name__
    # Whole numbers of numpy are welcome, too
    steps: object = plan.steps
    is_length = isinstance(steps, numbers.Integral) and 1 <= steps <= steps_left
    if not is_length:
        raise InputError(
            f"{kind} plans a round of {shown(steps)} steps: it must have at least one, and no more than the "
            f"{steps_left:,} that are left"
        )
    named: Mapping[str, Sequence[object]] = {
        "average": plan.due,
        "recycle": plan.recycled,
        "train": plan.trained or (),
    }
    for what, some_layers in named.items():
        for number in some_layers:
            is_there = isinstance(number, numbers.Integral) and 0 <= number < layers
            if not is_there:
                raise InputError(
                    f"{kind} plans to {what} layer {shown(number)}, and there are {layers}, counted from 0"
                )
