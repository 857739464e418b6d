"""What people write for bandwidths, times and straggling clients, read strictly, and the way back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from fedlama.base import InputError, shown

BITS_PER_SECOND = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}
SECONDS = {"ms": 1e-3, "s": 1.0}
# The slowest of 100 clients would already take a thousand times the median
MAX_SIGMA = 3.0


def bandwidth(text: str, option: str) -> float:
    """`10Mbit` in bits per second.

    Arguments:
        text: what the user wrote.
        option: where it was written, for the error's sentence.
    """
    value = _quantity(text, BITS_PER_SECOND)
    if value is None or value == 0:
        raise InputError(
            f"{option} {shown(text)}: write a bandwidth above zero as a number and one of bit, kbit, Mbit and Gbit "
            f"(a second), such as {option} 10Mbit"
        )
    return value


def duration(text: str, option: str) -> float:
    """`50ms` in seconds.

    Arguments:
        text: what the user wrote.
        option: where it was written, for the error's sentence.
    """
    value = _quantity(text, SECONDS)
    if value is None:
        raise InputError(
            f"{option} {shown(text)}: write a time as a number and one of ms and s, such as {option} 50ms"
        )
    return value


def straggling(text: str | None, option: str = "--stragglers") -> float:
    """The σ of `lognormal:0.5`; 0 where nobody straggles.

    Arguments:
        text: what the user wrote, if anything.
        option: where it was written, for the error's sentence.
    """
    if text is None:
        return 0.0

    found = re.fullmatch(r"lognormal:([0-9]+(?:\.[0-9]+)?)", text, re.ASCII)
    if found is None or float(found[1]) > MAX_SIGMA:
        raise InputError(
            f"{option} {shown(text)}: write lognormal:SIGMA with a sigma of 0 to {MAX_SIGMA:g}, such as "
            f"{option} lognormal:0.5"
        )
    return float(found[1])


def _quantity(text: str, units: Mapping[str, float]) -> float | None:
    """A number and a unit; None where it is anything else."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)", text, re.ASCII)
    if found is None:
        return None

    number = found[1]
    unit = found[2]
    if unit not in units:
        return None

    value = float(number) * units[unit]
    if not math.isfinite(value):
        return None
    return value


def bandwidth_text(bits_per_second: float) -> str:
    """A bandwidth with three digits: `25 Mbit/s`."""
    for name, size in reversed(BITS_PER_SECOND.items()):
        # What would be written as a thousand of one unit is one of the next.
        if bits_per_second >= 0.9995 * size:
            number = _three_digits(bits_per_second / size)
            return f"{number} {name}/s"
    number = _three_digits(bits_per_second)
    return f"{number} bit/s"


def duration_text(seconds: float) -> str:
    """A time as people say it: `20 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 h`."""
    if seconds < 0.9995:
        return f"{_three_digits(1000 * seconds)} ms"
    if seconds < 59.95:
        return f"{_three_digits(seconds)} s"

    whole = round(seconds)
    if whole < 3600:
        return _two_units(whole, "min", "s")

    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return _two_units(minutes, "h", "min")
    return f"{minutes / 1440:.1f} days"


def _two_units(count: int, large: str, small: str) -> str:
    """A count of the small unit in both; sixty of it are one of the large one."""
    whole = count // 60
    rest = count % 60

    if rest == 0:
        return f"{whole} {large}"
    return f"{whole} {large} {rest} {small}"


def _three_digits(value: float) -> str:
    """Without zeros that say nothing."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        text = f"{value:.1f}"
    else:
        text = f"{value:.2f}"
    return text.rstrip("0").rstrip(".")
