"""Patterns of layers' names: of several that a name matches, the first counts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from fedlama.base import InputError, shown
from fedlama.core.layers import Layer


def pattern_of_each(
    option: str, patterns: Collection[str], layers: Sequence[Layer]
) -> list[int | None]:
    """For every layer the number of the first pattern that its name matches, or None.

    A pattern that has no layer of its own is refused: whoever wrote it meant it to have an effect.

    Arguments:
        option: What the patterns are called where they were given, for the sentence.
        patterns: With `*` and `?`, in the order in which they count.
        layers: The model's.
    """
    found = [_first_match(layer.name, patterns) for layer in layers]
    for number, pattern in enumerate(patterns):
        if number in found:
            continue
        names = ", ".join(layer.name for layer in layers)
        lacks = "matches no layer"
        if any(fnmatchcase(layer.name, pattern) for layer in layers):
            lacks = "is left without a layer by the patterns before it"
        raise InputError(
            f"{option}: pattern {shown(pattern)} {lacks}; layers are {names}"
        )
    return found


def _first_match(name: str, patterns: Collection[str]) -> int | None:
    for number, pattern in enumerate(patterns):
        if fnmatchcase(name, pattern):
            return number
    return None
