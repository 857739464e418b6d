"""Numbers that a person gives: refused in one sentence that says what is allowed."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from fedlama.base.errors import InputError
from fedlama.base.text import shown

# Steps, rounds, clients and sizes of batches: the product of any two of them is still a 64-bit number.
MAX_WHOLE = 10**9
MAX_SEED = 2**62
MAX_SIZE = 2**62  # what is counted in numbers or bytes of a model


def check_whole(
    name: str, value: object, minimum: float | None, maximum: float = MAX_WHOLE
) -> None:
    """Raise InputError unless `value` is a whole number from `minimum` to `maximum`.

    Arguments:
        name: What the number is called where it was given, for the sentence.
        value: Anything; numpy's whole numbers are whole numbers, True and 3.0 are not.
        minimum: The smallest number that is allowed, if there is one.
        maximum: The largest one. Every whole number has an upper bound: beyond it, arrays and counters overflow long
            after the number was read, and far from the place where it could be named.
    """
    number = _whole(value)
    if number is None:
        given = shown(value)
        raise InputError(f"{name} must be a whole number, not {given}")
    if minimum is not None and number < minimum:
        allowed = f"at least {minimum:g}"
    elif number > maximum:
        allowed = f"at most {maximum:,}"
    else:
        return
    given = shown(number)
    raise InputError(f"{name} must be {allowed}, not {given}")


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise InputError unless `value` is one of `choices`.

    Arguments:
        name: What the value is called where it was given, for the sentence.
        value: Anything.
        choices: What is allowed, in the order in which the sentence lists it.
    """
    listed = list(choices)
    for choice in listed:
        # By type first: comparing with an array gives no yes or no.
        if isinstance(value, type(choice)) and value == choice:
            return
    allowed = ", ".join(map(str, listed))
    raise InputError(f"{name} must be one of {allowed}, not {shown(value)}")


def check_flag(name: str, value: object) -> None:
    """Raise InputError unless `value` is True or False.

    Arguments:
        name: What the value is called where it was given, for the sentence.
        value: Anything.
    """
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {shown(value)}")


def check_number(
    name: str,
    value: Any,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
) -> None:
    """Raise InputError unless `value` is a finite number within these limits.

    Arguments:
        name: What the number is called where it was given, for the sentence.
        value: Anything that float() takes, except texts and truth values.
        minimum: The smallest number that is allowed.
        above: A limit that is itself too small.
        maximum: The largest number that is allowed.
        below: A limit that is itself too large.
    """
    # What is no number at all is NaN, and inside no limits.
    number = _float(value)
    inside = math.isfinite(number)
    # All limits are named, also those that the number keeps: the sentence says what is allowed.
    allowed: list[str] = []
    if minimum is not None:
        allowed.append(f"at least {minimum:g}")
        inside = inside and number >= minimum
    if above is not None:
        allowed.append(f"above {above:g}")
        inside = inside and number > above
    if maximum is not None:
        allowed.append(f"at most {maximum:g}")
        inside = inside and number <= maximum
    if below is not None:
        allowed.append(f"below {below:g}")
        inside = inside and number < below
    if not inside:
        limits = " and ".join(allowed)
        given = shown(value)
        raise InputError(f"{name} must be {limits}, not {given}")


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _float(value: Any) -> float:
    """NaN for what is no finite number."""
    if isinstance(value, bool | str | bytes):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        # The last for a whole number beyond 10³⁰⁸
        return math.nan
