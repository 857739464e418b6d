"""Frozen values back from JSON, which knows lists but no tuples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same entries, with tuples for lists."""
    return {key: tuple(cast(list[Any], value)) if isinstance(value, list) else value for key, value in values.items()}
