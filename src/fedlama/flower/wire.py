"""What travels between the strategy and its clients.

To a client: a `Task` as JSON in a ConfigRecord, and one Array with the layers that it is sent. Back: a `Report` as
JSON, and one Array with the due layers. An Array holds the float32 numbers of its layers and of the statistics one
behind the other, or a coded message of `fedlama.compress`. One Array for all layers: each one costs Flower 4 kB.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from fedlama import compress
from fedlama.base import InputError
from fedlama.compress import Channel, Codec, Place
from fedlama.core import Layout
from fedlama.rows import pack, unpack

PROTOCOL = 1
RECORD = "fedlama"  # the ConfigRecord's name
LAYERS = "layers"  # the ArrayRecord's name, and that of the only Array in it
PLAIN = "fedlama.float32"
CODED = "fedlama.coded"
MAX_JSON = 1 << 20  # bytes of a report
BYTES_PER_NUMBER = 4

Keep = Literal["everything", "run", "nothing"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a client is to do in one round.

    `expects` is the tag of the state that it must have; empty for a client that enters, which is sent the whole model.
    `tag` is that of the state it then has. `keep` says what it should keep: everything, only what outlives a window, or
    nothing. `sent` are the layers it is sent, `due` those it must send; both with the statistics. `since` is the
    global step after which each layer was last synchronised.
    """

    run: str
    tag: str
    expects: str
    keep: Keep
    layout: str  # a digest: both sides must mean the same numbers
    grouping: str  # what is averaged as one, "tensor" or "module"
    seed: int
    client: int
    window: int
    base_interval: int
    step: int
    steps: int
    sent: list[int]
    due: list[int]
    trained: list[int] | None  # the layers that change in training; None: all of them
    since: list[int]
    counters: list[int]
    place: dict[str, Any]
    sent_place: dict[str, Any] | None  # of a coded download
    uplink: dict[str, Any] | None
    downlink: dict[str, Any] | None
    protocol: int = PROTOCOL

    @property
    def global_steps(self) -> range:
        """The steps of the round."""
        return range(self.step, self.step + self.steps)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a client says beside its numbers. `lost` means that its state is not what the task expects."""

    tag: str
    lost: bool = False
    loss: float = 0.0
    counters: list[int] = field(default_factory=list[int])


def task_record(task: Task, array: Array) -> RecordDict:
    """The content of the message to a client."""
    text = json.dumps(asdict(task))
    return RecordDict({RECORD: ConfigRecord({"task": text}), LAYERS: ArrayRecord({LAYERS: array})})


def read_task(message: Message) -> tuple[Task, Array]:
    """What a client was sent."""
    content = message.content
    if RECORD not in content.config_records:
        raise InputError("this client app works with fedlama.flower.LayerwiseStrategy only")
    values = json.loads(str(content.config_records[RECORD]["task"]))
    if values.get("protocol") != PROTOCOL:
        raise InputError(
            f"the server speaks protocol {values.get('protocol')}, this client {PROTOCOL}: install the same fedlama"
        )
    return Task(**values), content.array_records[LAYERS][LAYERS]


def report_record(report: Report, array: Array | None = None) -> RecordDict:
    """The content of a client's reply."""
    records = RecordDict({RECORD: ConfigRecord({"report": json.dumps(asdict(report))})})
    if array is not None:
        records[LAYERS] = ArrayRecord({LAYERS: array})
    return records


def read_report(content: RecordDict, counters: int) -> Report:
    """A client's report, or InputError: it may say anything.

    Arguments:
        content: The reply.
        counters: How many whole-number buffers the model has.
    """
    try:
        text = content.config_records[RECORD]["report"]
        if not isinstance(text, str) or len(text) > MAX_JSON:
            raise InputError("the report is not a text of at most a megabyte")
        values = json.loads(text)
        report = Report(**{one.name: values[one.name] for one in fields(Report)})
    except (KeyError, ValueError, TypeError, RecursionError):
        raise InputError("the reply has no report") from None
    if not isinstance(report.tag, str) or type(report.lost) is not bool or type(report.loss) not in (int, float):
        raise InputError("the report holds values of other types")
    if not isinstance(report.counters, list) or (not report.lost and len(report.counters) != counters):
        raise InputError("the report does not hold the model's whole-number buffers")
    if not all(type(one) is int and abs(one) < 1 << 62 for one in report.counters):
        raise InputError("the report does not hold the model's whole-number buffers")
    return report


def read_array(content: RecordDict) -> Array:
    """The one Array of a reply."""
    records = content.array_records
    if list(records) != [LAYERS] or list(records[LAYERS]) != [LAYERS]:
        raise InputError("unknown or missing layers")
    return records[LAYERS][LAYERS]


def plain_array(row: Tensor, slices: Sequence[slice]) -> Array:
    """These slices as float32 numbers."""
    return _array(pack(row, slices).detach().cpu().numpy().astype("<f4").tobytes(), PLAIN)


def coded_array(content: bytes) -> Array:
    """A coded message."""
    return _array(content, CODED)


def _array(content: bytes, kind: str) -> Array:
    return Array(dtype="uint8", shape=(len(content),), stype=kind, data=content)


def read_plain(array: Array, row: Tensor, slices: Sequence[slice]) -> None:
    """Write the numbers of a plain Array into these slices of a row; a wrong length or NaN leaves the row as it was."""
    size = sum(part.stop - part.start for part in slices)
    # The header may lie about shape and type, so only what the bytes are is believed.
    if array.stype != PLAIN or len(array.data) != BYTES_PER_NUMBER * size:
        raise InputError(f"wrong shape: {len(array.data)} bytes of {array.stype[:40]} where {size} numbers were due")
    numbers = torch.frombuffer(bytearray(array.data), dtype=torch.float32)
    if not bool(numbers.isfinite().all()):
        raise NotFiniteError("not finite")
    unpack(numbers, row, slices)


class NotFiniteError(InputError):
    """An update holds NaN or infinity."""


def check_loss(loss: float) -> None:
    """A loss that is not finite goes with an update that is worth nothing."""
    if not math.isfinite(loss):
        raise NotFiniteError("not finite")


def all_slices(layout: Layout, layers: Sequence[int]) -> list[slice]:
    """The slices of these layers and of the statistics."""
    return [*layout.slices_of(layers), *layout.statistics]


def layout_digest(layout: Layout, counters: int) -> str:
    """What both sides compare: the names and sizes of all layers, of the statistics and of the counters."""
    names = [[layer.name, layer.size] for layer in layout.layers]
    text = json.dumps([names, [str(part) for part in layout.statistics], layout.width, counters])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def place_to_plain(place: Place) -> dict[str, Any]:
    """As JSON can hold it."""
    plain = asdict(place)
    plain["layer_rounds"] = [[layer, *turn] for layer, turn in place.layer_rounds.items()]
    return plain


def place_from_plain(plain: dict[str, Any]) -> Place:
    """Back from `place_to_plain`."""
    layer_rounds = {layer: (number, count) for layer, number, count in plain["layer_rounds"]}
    return Place(**{**plain, "layer_rounds": layer_rounds})


def codec_to_plain(codec: Codec) -> dict[str, Any]:
    """A codec as JSON can hold it: its name and its options, of which some may be codecs."""
    name = type(codec).__name__
    if not is_dataclass(codec) or getattr(compress, name, None) is not type(codec):
        raise InputError(f"clients know the codecs of fedlama.compress only, not {codec!r}")
    options: dict[str, Any] = {}
    for option in fields(codec):
        value = getattr(codec, option.name)
        options[option.name] = codec_to_plain(value) if isinstance(value, Codec) else value
    return {"codec": name, "options": options}


def codec_from_plain(plain: dict[str, Any]) -> Codec:
    """Back from `codec_to_plain`; nothing but codecs of `fedlama.compress` is ever made."""
    kind = getattr(compress, str(plain["codec"]), None)
    if plain["codec"] not in compress.__all__ or not isinstance(kind, type) or not issubclass(kind, Codec):
        raise InputError(f"there is no codec {plain['codec']!r} in fedlama.compress: install the server's fedlama")
    options: dict[str, Any] = {}
    for name, value in plain["options"].items():
        options[name] = value
        if isinstance(value, dict):
            options[name] = codec_from_plain(value)
        elif isinstance(value, list):
            options[name] = tuple(value)
    return kind(**options)


def channel_of(
    plain: dict[str, Any] | None, layout: Layout, seed: int, direction: Literal["uplink", "downlink"]
) -> Channel | None:
    """The channel of a codec that a task describes."""
    if plain is None:
        return None
    return Channel(codec_from_plain(plain), layout, seed=seed, direction=direction)
