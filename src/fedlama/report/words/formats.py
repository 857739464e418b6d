"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.report.numbers.outcomes import LOSS
from fedlama.report.numbers.seeds import Spread
from fedlama.training.records import ACCURACY

UNKNOWN = "–"
BYTE_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def percent(share: float | None, digits: int = 2) -> str:
    """A share as a percentage, as the paper prints it."""
    if share is None:
        return UNKNOWN
    return f"{100 * share:.{digits}f} %"


def share_text(share: float | None) -> str:
    """A share of bytes with as many digits as matter: `35.2 %`, `0.97 %`."""
    if share is None:
        return UNKNOWN
    shown = 100 * share
    if shown >= 10:
        return f"{shown:.1f} %"
    return f"{shown:.2f} %"


def human_bytes(count: float | None) -> str:
    """Bytes in decimal units, three digits."""
    if count is None:
        return UNKNOWN

    for unit, size in BYTE_UNITS:
        if count >= 0.9995 * size:
            digits = _scaled_digits(count / size)
            return f"{digits} {unit}"
    return f"{count:.0f} B"


def _scaled_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}"


def spread_text(spread: Spread | None, metric: str, digits: int = 2) -> str:
    """Mean ± sample standard deviation.

    Arguments:
        spread: the number over seeds.
        metric: its name; an accuracy is shown as a percentage.
        digits: after the point of a percentage; other metrics have three.
    """
    if spread is None:
        return UNKNOWN

    if metric == ACCURACY:
        mean = f"{100 * spread.mean:.{digits}f}"
        if spread.deviation is None:
            return f"{mean} %"
        return f"{mean} ± {100 * spread.deviation:.{digits}f} %"

    mean = f"{spread.mean:.3f}"
    if spread.deviation is None:
        return mean
    return f"{mean} ± {spread.deviation:.3f}"


def gap_text(gap: float, metric: str, sign: int = 1) -> tuple[str, str]:
    """The size of a difference between scores, empty where it rounds to nothing, and its direction.

    Arguments:
        gap: the difference.
        metric: what differs.
        sign: −1 where less is better: then the direction is "better" or "worse".
    """
    if metric == ACCURACY:
        points = f"{abs(100 * gap):.1f}"
        size = f"{points} points"
        direction = "less"
        if gap > 0:
            direction = "more"
    else:
        points = f"{abs(gap):.2f}"
        size = points
        direction = "lower"
        if gap > 0:
            direction = "higher"
    if sign < 0:
        direction = "better"
        if gap > 0:
            direction = "worse"

    if float(points) == 0:
        size = ""
    return size, direction


def score_text(score: float, metric: str) -> str:
    """A score by itself: an accuracy with one digit after the point, others with three."""
    if metric == ACCURACY:
        return percent(score, 1)
    return f"{score:.3f}"


def named_score(text: str, metric: str) -> str:
    """A score in a sentence: `90.6 %`, `a loss of 0.310`, `F1 0.812`.

    Arguments:
        text: the score as it is shown.
        metric: its name; of an accuracy the percentage says enough.
    """
    if metric == ACCURACY:
        return text
    if metric == LOSS:
        return f"a loss of {text}"
    return f"{metric} {text}"


def count_text(value: float) -> str:
    """A mean count: whole where it is whole."""
    if value == round(value):
        return f"{value:.0f}"
    return f"{value:.1f}"


def bits_text(bits: float | None) -> str:
    """Bits for each number: `32`, `4.03`, `0.26`."""
    if bits is None:
        return UNKNOWN
    return f"{bits:.2f}".removesuffix(".00")


def plural(count: int, word: str) -> str:
    """`1 seed`, `4 seeds`."""
    if count == 1:
        return f"{count} {word}"
    return f"{count} {word}s"


def upper_first(text: str) -> str:
    """`Test loss`, `RMSE`: a name may have capitals of its own."""
    return text[:1].upper() + text[1:]


def joined(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) == 1:
        return parts[0]
    first = ", ".join(parts[:-1])
    return f"{first} and {parts[-1]}"


def unbroken(text: str) -> str:
    """A number stays on one line with its unit and its spread, and a minus with what it subtracts."""
    together = text
    for part in (" %", "− ", " ± "):
        without_break = part.replace(" ", "\N{NO-BREAK SPACE}")
        together = together.replace(part, without_break)
    return together


def seeds_spanned(seeds: Sequence[int]) -> str:
    """`seed 2`, `seeds 0 and 2` or `seeds 0 to 2`: in a title there is no room for a long list."""
    listed = sorted(seeds)
    first = listed[0]
    last = listed[-1]
    if len(listed) == 1:
        return f"seed {first}"

    is_a_range = listed == list(range(first, last + 1))
    if is_a_range and len(listed) > 2:
        return f"seeds {first} to {last}"
    names = [str(seed) for seed in listed]
    return f"seeds {joined(names)}"


def seeds_named(seeds: Sequence[int]) -> str:
    """`seed 2` or `seeds 0, 1`."""
    listed = ", ".join(map(str, seeds))
    if len(seeds) == 1:
        return f"seed {listed}"
    return f"seeds {listed}"
