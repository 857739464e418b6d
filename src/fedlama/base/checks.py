"""Numbers that a person gives: refused in one sentence that says what is allowed."""

from __future__ import annotations

import math
import operator
from typing import Any

from fedlama.base.errors import InputError
from fedlama.base.text import shown

# Steps, rounds, clients and sizes of batches: the product of any two of them is still a 64-bit number.
MAX_WHOLE = 10**9
MAX_SEED = 2**62
MAX_SIZE = 2**62  # what is counted in numbers or bytes of a model


def check_whole(name: str, value: object, least: float | None, most: float = MAX_WHOLE) -> None:
    """Raise InputError unless `value` is a whole number from `least` to `most`.

    Arguments:
        name: What the number is called where it was given, for the sentence.
        value: Anything; numpy's whole numbers are whole numbers, True and 3.0 are not.
        least: The smallest number that is allowed; None for any.
        most: The largest one. Every whole number has an upper bound: beyond it, arrays and counters overflow long after
            the number was read, and far from the place where it could be named.
    """
    number = _whole(value)
    if number is None:
        raise InputError(f"{name} must be a whole number, not {shown(value)}")
    if least is not None and number < least:
        raise InputError(f"{name} must be at least {least:g}, not {shown(number)}")
    if number > most:
        raise InputError(f"{name} must be at most {most:,}, not {shown(number)}")


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> None:
    """Raise InputError unless `value` is a finite number within these limits.

    Arguments:
        name: What the number is called where it was given, for the sentence.
        value: Anything that float() takes, except texts and truth values.
        least: The smallest number that is allowed.
        above: A limit that is itself too small.
        most: The largest number that is allowed.
        below: A limit that is itself too large.
    """
    number = _float(value)
    allowed: list[str] = []
    inside = math.isfinite(number)
    if least is not None:
        allowed.append(f"at least {least:g}")
        inside = inside and number >= least
    if above is not None:
        allowed.append(f"above {above:g}")
        inside = inside and number > above
    if most is not None:
        allowed.append(f"at most {most:g}")
        inside = inside and number <= most
    if below is not None:
        allowed.append(f"below {below:g}")
        inside = inside and number < below
    if not inside:
        raise InputError(f"{name} must be {' and '.join(allowed)}, not {shown(value)}")


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _float(value: Any) -> float:
    """NaN, which is outside all limits, for what is no number."""
    if isinstance(value, bool | str | bytes):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number beyond 10³⁰⁸
        if value > 0:
            return math.inf
        return -math.inf
    except (TypeError, ValueError):
        return math.nan
