"""How messages between the strategy and its clients are made.

To a client goes a `Task` with the layers that it is sent, back comes a `Report` with the due layers. Flower moves every
object of a message by a request of its own, which costs more than a kilobyte. So a message is one record of one Array,
which holds all layers, and behind them what a local rule is sent beside the model. Task or report are JSON in the
Array's type, behind the name of what its bytes are: there they cost no object, and the bytes stay equal for all clients
that are sent the same, so that the SuperLink keeps them once.
"""

from __future__ import annotations

import json
from typing import Any

from flwr.app import Array, ArrayRecord, RecordDict

from fedlama.base import InputError
from fedlama.flower.packing import Packed

LAYERS = "layers"  # the ArrayRecord's name, and that of its Array
KIND_ENDS = " "  # in the Array's type, between what its bytes are and the JSON


def to_record(values: dict[str, Any], packed: Packed) -> RecordDict:
    """A message of as few objects as Flower can make of it.

    Arguments:
        values: A task or a report, as JSON has it.
        packed: The numbers.
    """
    text = json.dumps(values)
    array = Array(
        dtype="uint8",
        shape=(len(packed.content),),
        stype=packed.kind + KIND_ENDS + text,
        data=packed.content,
    )
    record = ArrayRecord({LAYERS: array})
    return RecordDict({LAYERS: record})


def from_record(content: RecordDict) -> tuple[str, Packed]:
    """Back from `to_record`: the JSON and the numbers, or InputError, for a client may send anything.

    Arguments:
        content: Of a message.
    """
    records = content.array_records
    if list(records) != [LAYERS]:
        raise InputError("unknown or missing layers")
    arrays = records[LAYERS]
    if list(arrays) != [LAYERS]:
        raise InputError("unknown or missing layers")

    array = arrays[LAYERS]
    kind, _, text = array.stype.partition(KIND_ENDS)
    packed = Packed(kind, array.data)
    return text, packed
