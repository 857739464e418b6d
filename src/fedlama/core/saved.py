"""States that come back from elsewhere: checked before anybody computes with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

MAX_COUNT = 1 << 62  # of steps and bytes
PER_LAYER = ("intervals", "discrepancy", "synchronised_at", "sizes", "aggregations", "layer_uplink", "layer_downlink")


def check_saved(state: Mapping[str, Any], ledger: Mapping[str, Any]) -> None:
    """Raise ValueError unless these are a policy's state and a ledger as plain values.

    Every value is a whole number that is not negative, or a list with one for each layer; only discrepancies are
    floats, and intervals are at least 1. What a policy keeps for itself is its own: plain JSON of any form.
    """
    layers = len(ledger["sizes"])
    values = {name: value for name, value in state.items() if name != "own"}
    for name, value in {**values, **ledger}.items():
        is_list = isinstance(value, list | tuple)
        entries: list[Any] = [value]
        if is_list:
            entries = list(cast("list[Any]", value))
        if is_list != (name in PER_LAYER) or (is_list and len(entries) != layers):
            raise ValueError(f"{name} is not as long as there are layers")
        kinds = (int, float) if name == "discrepancy" else (int,)
        smallest = 1 if name == "intervals" else 0
        for entry in entries:
            if type(entry) not in kinds or not smallest <= entry < MAX_COUNT:
                raise ValueError(f"{name} holds something else than numbers that are not negative")
