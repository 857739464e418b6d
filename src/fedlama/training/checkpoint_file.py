"""The parts of a checkpoint's file, read back: what a run does not write is refused, whatever else it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import deserialize

from fedlama.core import Message
from fedlama.core.saved import MAX_COUNT

# As safetensors names them; a checkpoint has no others
DTYPES: dict[str, type[np.float32 | np.int64]] = {
    "F32": np.float32,
    "I64": np.int64,
}
LENGTH_BYTES = 8  # with which a safetensors file begins


def metadata_of(content: bytes) -> dict[str, str]:
    """The texts in the header, which safetensors itself does not hand out for bytes."""
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + length
    header = content[LENGTH_BYTES:end]
    if len(header) < length:
        raise ValueError("its header is cut off")
    plain = json.loads(header)
    return plain["__metadata__"]


def arrays_of(content: bytes) -> dict[str, NDArray[Any]]:
    """All arrays by their names."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in deserialize(content):
        arrays[name] = _array(entry)
    return arrays


def _array(entry: dict[str, Any]) -> NDArray[Any]:
    dtype = DTYPES[entry["dtype"]]
    flat = np.frombuffer(entry["data"], dtype)
    values = flat.reshape(entry["shape"])
    # In memory of its own: that of the file cannot be written to
    return values.copy()


def rows_at(place: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays under a place in the file, by what follows it in their names."""
    rows: dict[str, NDArray[Any]] = {}
    for name, values in arrays.items():
        if not name.startswith(place):
            continue
        slot = name.removeprefix(place)
        rows[slot] = values
    return rows


def message_of(plain: Mapping[str, Any], layers: int) -> Message:
    """What a client downloads, from plain values.

    Arguments:
        plain: As JSON has it.
        layers: How many layers the model has.
    """
    weights: dict[int, int] = {}
    for name, weight in plain["layers"].items():
        layer = int(name)
        if not 0 <= layer < layers:
            raise ValueError("broadcast names a layer that is not there")
        weights[layer] = _bytes(weight)
    statistics = _bytes(plain["statistics"])
    return Message(weights, statistics)


def _bytes(value: object) -> int:
    count = whole(value)
    if not 0 <= count < MAX_COUNT:
        raise ValueError(
            "broadcast holds something else than numbers that are not negative"
        )
    return count


def whole(value: object) -> int:
    """A whole number; True is none, nor is 1.0."""
    if type(value) is not int:
        raise ValueError("a count is not a whole number")
    return value
