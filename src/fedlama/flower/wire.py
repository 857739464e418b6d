"""What travels between the strategy and its clients.

To a client: a `Task` as JSON in a ConfigRecord, and one Array with the layers that it is sent. Back: a `Report` as
JSON, and one Array with the due layers. An Array holds the float32 numbers of its layers and of the statistics one
behind the other, or a coded message of `fedlama.compress`. One Array for all layers: each one costs Flower 4 kB. A
second one goes to clients only where their local rule is sent more than the model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from fedlama.base import InputError
from fedlama.core import Layout
from fedlama.rows import Grouping, pack, unpack

PROTOCOL = 2
RECORD = "fedlama"  # the ConfigRecord's name
LAYERS = "layers"  # the ArrayRecord's name, and that of the Array with the model's layers
BESIDE = "beside"  # the Array with what a local rule is sent beside them
PLAIN = "fedlama.float32"
CODED = "fedlama.coded"
MAX_JSON = 1 << 20  # bytes of a report
MAX_COUNTER = 1 << 62
MAX_KIND = 40  # characters of an Array's type in an error
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
    grouping: Grouping  # what is averaged as one
    rule: str  # the local rule that the server takes part in; empty where it takes none
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


def task_record(task: Task, array: Array, beside: Array | None = None) -> RecordDict:
    """The content of the message to a client.

    Arguments:
        task: What it is to do.
        array: The layers that it is sent.
        beside: What its local rule is sent beside them.
    """
    arrays = {LAYERS: array}
    if beside is not None:
        arrays[BESIDE] = beside
    text = json.dumps(asdict(task))
    return RecordDict({RECORD: ConfigRecord({"task": text}), LAYERS: ArrayRecord(arrays)})


def read_task(message: Message) -> tuple[Task, ArrayRecord]:
    """What a client was sent: its task, and the Arrays that go with it.

    Arguments:
        message: Flower's.
    """
    content = message.content
    if RECORD not in content.config_records:
        raise InputError("this client app works with fedlama.flower.LayerwiseStrategy only")
    values = json.loads(str(content.config_records[RECORD]["task"]))
    if values.get("protocol") != PROTOCOL:
        raise InputError(
            f"the server speaks protocol {values.get('protocol')}, this client {PROTOCOL}: install the same fedlama"
        )
    return Task(**values), content.array_records[LAYERS]


def report_record(report: Report, array: Array | None = None) -> RecordDict:
    """The content of a client's reply.

    Arguments:
        report: What it says.
        array: The due layers; None where it has lost its state.
    """
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
    values = _report_values(content)
    tag = values.get("tag")
    lost = values.get("lost")
    loss = values.get("loss")
    numbers = values.get("counters")
    if not isinstance(tag, str) or type(lost) is not bool:
        raise InputError("the report holds values of other types")
    if not isinstance(loss, int | float) or isinstance(loss, bool):
        raise InputError("the report holds values of other types")
    if not isinstance(numbers, list):
        raise InputError("the report does not hold the model's whole-number buffers")
    if not lost and len(numbers) != counters:
        raise InputError("the report does not hold the model's whole-number buffers")
    for number in numbers:
        if type(number) is not int or abs(number) >= MAX_COUNTER:
            raise InputError("the report does not hold the model's whole-number buffers")
    return Report(tag=tag, lost=lost, loss=float(loss), counters=numbers)


def _report_values(content: RecordDict) -> dict[str, Any]:
    record = content.config_records.get(RECORD)
    if record is None or "report" not in record:
        raise InputError("the reply has no report")
    text = record["report"]
    if not isinstance(text, str) or len(text) > MAX_JSON:
        raise InputError("the report is not a text of at most a megabyte")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("the reply has no report") from None
    if not isinstance(values, dict):
        raise InputError("the reply has no report")
    return values


def read_array(content: RecordDict) -> Array:
    """The one Array of a reply.

    Arguments:
        content: The reply.
    """
    records = content.array_records
    if list(records) != [LAYERS]:
        raise InputError("unknown or missing layers")
    arrays = records[LAYERS]
    if list(arrays) != [LAYERS]:
        raise InputError("unknown or missing layers")
    return arrays[LAYERS]


def plain_array(row: Tensor, slices: Sequence[slice]) -> Array:
    """These slices as float32 numbers.

    Arguments:
        row: The numbers.
        slices: Which of them, one behind the other.
    """
    packed = pack(row, slices)
    numbers = packed.detach().cpu().numpy()
    content = numbers.astype("<f4").tobytes()
    return _array(content, PLAIN)


def rule_array(rows: Sequence[Tensor], slices: Sequence[slice]) -> Array:
    """These slices of several rows of a local rule, one row behind the other.

    Arguments:
        rows: The rule's rows.
        slices: Which numbers of each.
    """
    content = b""
    for row in rows:
        content += plain_array(row, slices).data
    return _array(content, PLAIN)


def coded_array(content: bytes) -> Array:
    """A coded message.

    Arguments:
        content: Its bytes.
    """
    return _array(content, CODED)


def _array(content: bytes, kind: str) -> Array:
    return Array(dtype="uint8", shape=(len(content),), stype=kind, data=content)


def read_plain(array: Array, row: Tensor, slices: Sequence[slice]) -> None:
    """Write the numbers of a plain Array into a row; a wrong length or NaN leaves the row as it was.

    Arguments:
        array: What was sent.
        row: Where its numbers go.
        slices: Which of the row they are.
    """
    numbers = _plain_numbers(array, size_of(slices))
    unpack(numbers, row, slices)


def read_rule_rows(array: Array, rows: Sequence[Tensor], slices: Sequence[slice]) -> None:
    """Back from `rule_array`.

    Arguments:
        array: What was sent.
        rows: The rule's rows, which are written to.
        slices: Which numbers of each.
    """
    size = size_of(slices)
    total = len(rows) * size
    numbers = _plain_numbers(array, total)
    of_rows = numbers.split(size)
    for row, values in zip(rows, of_rows, strict=True):
        unpack(values, row, slices)


def _plain_numbers(array: Array, size: int) -> Tensor:
    # The header may lie about shape and type, so only what the bytes are is believed.
    length = len(array.data)
    if array.stype != PLAIN or length != BYTES_PER_NUMBER * size:
        kind = array.stype[:MAX_KIND]
        raise InputError(f"wrong shape: {length} bytes of {kind} where {size} numbers were due")
    content = bytearray(array.data)
    numbers = torch.frombuffer(content, dtype=torch.float32)
    finite = numbers.isfinite().all()
    if not bool(finite):
        raise NotFiniteError("not finite")
    return numbers


def size_of(slices: Sequence[slice]) -> int:
    """How many numbers these slices hold.

    Arguments:
        slices: With a start and a stop.
    """
    size = 0
    for part in slices:
        size += part.stop - part.start
    return size


class NotFiniteError(InputError):
    """An update holds NaN or infinity."""


def check_loss(loss: float) -> None:
    """A loss that is not finite goes with an update that is worth nothing.

    Arguments:
        loss: A client's.
    """
    if not math.isfinite(loss):
        raise NotFiniteError("not finite")


def all_slices(layout: Layout, layers: Sequence[int]) -> list[slice]:
    """The slices of these layers and of the statistics.

    Arguments:
        layout: The model's.
        layers: Their numbers.
    """
    return [*layout.slices_of(layers), *layout.statistics]


def layout_digest(layout: Layout, counters: int) -> str:
    """What both sides compare: the names and sizes of all layers, of the statistics and of the counters.

    Arguments:
        layout: The model's.
        counters: How many whole-number buffers it has.
    """
    layers: list[list[str | int]] = []
    for layer in layout.layers:
        layers.append([layer.name, layer.size])
    statistics = [str(part) for part in layout.statistics]
    text = json.dumps([layers, statistics, layout.width, counters])
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest()[:16]
