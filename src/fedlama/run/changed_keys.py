"""What differs between two configurations of a run: whether it is the same run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedlama.base import printable, shown
from fedlama.run.config import as_written_today

# How a run is kept and watched, which changes none of its numbers: a run may go on with others.
OPERATION = ("train.checkpoint_minutes", "output.tensorboard")
MAX_NAMED = 8  # keys in a sentence
MAX_KEY = 100  # characters


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two configurations, as `key (was …, is …)`; they may be of earlier versions.

    How a run is operated makes no difference.
    """
    old = _flat(as_written_today(before))
    new = _flat(as_written_today(now))
    different: list[str] = []
    for key in sorted({*old, *new}):
        # Runs of earlier versions do not have it.
        if key == "data.sha256" and key not in old:
            continue
        # Code that changed is reported, and does not stop a run from going on.
        if key.startswith("hashes."):
            continue
        if key in OPERATION:
            continue

        was = old.get(key, "not set")
        is_now = new.get(key, "not set")
        if was != is_now:
            name = printable(key, MAX_KEY)
            different.append(f"{name} (was {shown(was)}, is {shown(is_now)})")

    more = len(different) - MAX_NAMED
    if more <= 0:
        return different
    return [*different[:MAX_NAMED], f"and {more} more"]


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables within tables as one, with keys such as `policy.kind`."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            inner = _flat(value, f"{path}.")
            flat.update(inner)
        else:
            flat[path] = value
    return flat
