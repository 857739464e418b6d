"""Numbers that a person gives: refused in one sentence that says what is allowed."""

from __future__ import annotations

import math
import operator
from typing import Any

from fedlama.base.errors import InputError


def check_whole(name: str, value: object, least: int) -> None:
    """Raise InputError unless `value` is a whole number (numpy's count, too) that is not below `least`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, not {value!r}")
    if number < least:
        raise InputError(f"{name} must be at least {least}, not {number}")


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> None:
    """Raise InputError unless `value` is a number within these limits."""
    limits = {"at least": least, "above": above, "at most": most, "below": below}
    allowed = " and ".join(f"{words} {limit:g}" for words, limit in limits.items() if limit is not None)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    inside = (
        (least is None or number >= least)
        and (above is None or number > above)
        and (most is None or number <= most)
        and (below is None or number < below)
        and not math.isnan(number)
    )
    if not inside or isinstance(value, bool | str):
        raise InputError(f"{name} must be {allowed}, not {value!r}")
