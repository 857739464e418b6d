"""States that come back from elsewhere: checked before anybody computes with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

MAX_COUNT = 1 << 62  # of steps and bytes
PER_LAYER = (
    "intervals",
    "discrepancy",
    "synchronised_at",
    "sizes",
    "aggregations",
    "layer_uplink",
    "layer_downlink",
)


def check_saved(state: Mapping[str, Any], ledger: Mapping[str, Any]) -> None:
    """Raise ValueError unless these are a policy's state and a ledger as plain values.

    Every value is a whole number that is not negative, or a list with one for each layer; only discrepancies are
    floats, and intervals are at least 1. What a policy keeps for itself is its own: plain JSON of any form.

    Arguments:
        state: The fields of a `PolicyState`.
        ledger: The fields of a `Ledger`.
    """
    layers = len(ledger["sizes"])
    values = {**state, **ledger}
    values.pop("own", None)
    for name, value in values.items():
        entries = _entries(name, value, layers)
        for entry in entries:
            _check_number(name, entry)


def _entries(name: str, value: object, layers: int) -> list[Any]:
    """A value by itself, or one for each layer."""
    if name not in PER_LAYER:
        if isinstance(value, list | tuple):
            raise ValueError(f"{name} is a list")
        return [value]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} is not a list")
    entries = list(cast("list[Any]", value))
    if len(entries) != layers:
        raise ValueError(f"{name} is not as long as there are layers")
    return entries


def _check_number(name: str, value: Any) -> None:
    kinds: tuple[type, ...] = (int,)
    if name == "discrepancy":
        kinds = (int, float)
    smallest = 0
    if name == "intervals":
        smallest = 1
    if type(value) not in kinds or not smallest <= value < MAX_COUNT:
        raise ValueError(
            f"{name} holds something else than numbers that are not negative"
        )
