"""Frozen values back from JSON, which knows lists but no tuples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same entries, with tuples for lists.

    Arguments:
        values: The fields of a frozen value by name.
    """
    restored = dict(values)
    for name, value in values.items():
        if isinstance(value, list):
            entries = cast(list[Any], value)
            restored[name] = tuple(entries)
    return restored
