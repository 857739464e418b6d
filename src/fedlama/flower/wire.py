"""What travels between the strategy and its clients.

To a client: a `Task` and the layers that it is sent. Back: a `Report` and the due layers. Flower moves every object of
a message by a request of its own, which costs more than a kilobyte. So a message is one record of one Array, which
holds all layers, and behind them what a local rule is sent beside the model. Task or report are JSON in the Array's
type, behind the name of what its bytes are: there they cost no object, and the bytes stay equal for all clients that
are sent the same, so that the SuperLink keeps them once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedlama.base import InputError
from fedlama.core import Layout
from fedlama.flower.packing import Packed
from fedlama.rows import Grouping

PROTOCOL = 3
RECORD = "fedlama"  # the name of the ConfigRecord in which a node is asked who it is, and says it
FORGET = "forget"  # in that record, where a run has ended: its name
KEEP = "keep"  # beside it: what a client should keep all the same
LAYERS = "layers"  # the ArrayRecord's name, and that of its Array
KIND_ENDS = " "  # in the Array's type, between what its bytes are and the JSON
MAX_JSON = 1 << 20  # characters of a report
MAX_COUNTER = 1 << 62
MAX_COUNTED = 1 << 20  # in one round, beyond its steps

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
    beside: int  # bytes behind the layers: what the local rule is sent beside them
    uplink: dict[str, Any] | None
    downlink: dict[str, Any] | None
    protocol: int = PROTOCOL

    @property
    def global_steps(self) -> range:
        """The steps of the round."""
        end = self.step + self.steps
        return range(self.step, end)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a client says beside its numbers. `lost` means that its state is not what the task expects."""

    tag: str
    lost: bool = False
    loss: float = 0.0
    counters: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A run that has ended: its name, and what clients should keep of it, "run" where it may be resumed."""

    name: str
    keep: Keep


@dataclass(frozen=True, kw_only=True)
class Download:
    """What came with a task.

    Arguments:
        layers: The layers that the client is sent.
        beside: What its local rule is sent beside them.
    """

    layers: Packed
    beside: bytes


def forget_record(run: EndedRun) -> RecordDict:
    """The content of a query by which a client frees what it has of a run.

    Arguments:
        run: The run.
    """
    request = ConfigRecord({FORGET: run.name, KEEP: run.keep})
    return RecordDict({RECORD: request})


def read_forget(question: ConfigRecord) -> EndedRun | None:
    """The run that a client should forget; None where it is asked something else.

    Arguments:
        question: What came with a query.
    """
    name = question.get(FORGET)
    if name is None:
        return None
    keep: Keep = "nothing"
    if question.get(KEEP) == "run":
        keep = "run"
    return EndedRun(name=str(name), keep=keep)


def task_record(task: Task, packed: Packed) -> RecordDict:
    """The content of the message to a client.

    Arguments:
        task: What it is to do.
        packed: The layers that it is sent, with what its local rule is sent behind them.
    """
    return _record(asdict(task), packed)


def read_task(message: Message) -> tuple[Task, Download]:
    """What a client was sent: its task, and the numbers that go with it.

    Arguments:
        message: Flower's.
    """
    try:
        text, packed = _read_record(message.content)
    except InputError:
        raise InputError(
            "this client app works with fedlama.flower.LayerwiseStrategy of the same version"
        ) from None

    values = json.loads(text)
    protocol = values.get("protocol")
    if protocol != PROTOCOL:
        raise InputError(
            f"the server speaks protocol {protocol}, this client {PROTOCOL}: install the same fedlama"
        )

    task = Task(**values)
    end_of_layers = len(packed.content) - task.beside
    download = Download(
        layers=Packed(packed.kind, packed.content[:end_of_layers]),
        beside=packed.content[end_of_layers:],
    )
    return task, download


def report_record(report: Report, packed: Packed | None = None) -> RecordDict:
    """The content of a client's reply.

    Arguments:
        report: What it says.
        packed: The due layers; None where it has lost its state.
    """
    if packed is None:
        packed = Packed()
    return _record(asdict(report), packed)


def _record(values: dict[str, Any], packed: Packed) -> RecordDict:
    """A message of as few objects as Flower can make of it."""
    text = json.dumps(values)
    array = Array(
        dtype="uint8",
        shape=(len(packed.content),),
        stype=packed.kind + KIND_ENDS + text,
        data=packed.content,
    )
    record = ArrayRecord({LAYERS: array})
    return RecordDict({LAYERS: record})


def _read_record(content: RecordDict) -> tuple[str, Packed]:
    """Back from `_record`: the JSON and the numbers, or InputError, for a client may send anything."""
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


def read_reply(content: RecordDict, counters: int) -> tuple[Report, Packed]:
    """A client's report and its numbers, or InputError: it may send anything.

    Arguments:
        content: The reply.
        counters: How many whole-number buffers the model has.
    """
    text, packed = _read_record(content)
    report = _read_report(text, counters)
    return report, packed


def _read_report(text: str, counters: int) -> Report:
    values = _report_values(text)
    tag = values.get("tag")
    lost = values.get("lost")
    loss = values.get("loss")
    numbers = values.get("counters")

    if not isinstance(tag, str) or type(lost) is not bool:
        raise InputError("the report holds values of other types")
    if not isinstance(loss, int | float) or isinstance(loss, bool):
        raise InputError("the report holds values of other types")
    # A whole number may have so many digits that it is no float.
    if type(loss) is int and abs(loss) >= MAX_COUNTER:
        raise InputError("the report holds a loss that is no number of a loss")

    if not isinstance(numbers, list):
        raise InputError("the report does not hold the model's whole-number buffers")
    if not lost and len(numbers) != counters:
        raise InputError("the report does not hold the model's whole-number buffers")
    for number in numbers:
        if type(number) is not int or abs(number) >= MAX_COUNTER:
            raise InputError(
                "the report does not hold the model's whole-number buffers"
            )
    return Report(
        tag=tag,
        lost=lost,
        loss=float(loss),
        counters=numbers,
    )


def _report_values(text: str) -> dict[str, Any]:
    if len(text) > MAX_JSON:
        raise InputError("the report is longer than a megabyte")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("the reply has no report") from None
    if not isinstance(values, dict):
        raise InputError("the reply has no report")
    return values


def check_counters(
    counters: Sequence[int], *, before: Sequence[int], steps: int
) -> None:
    """Refuse whole-number buffers that no round of so many steps could have counted to.

    The server keeps the largest: one client with a number close to `MAX_COUNTER` would have all others refused from
    the next round on, in which they count past it.

    Arguments:
        counters: A client's, after the round.
        before: Those that it was sent.
        steps: How many steps the round has.
    """
    for number, sent in zip(counters, before, strict=True):
        counted = number - sent
        if counted < 0 or counted > steps + MAX_COUNTED:
            raise InputError(
                f"a whole-number buffer went from {sent} to {number} in {steps} steps"
            )


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
    described = [
        layers,
        statistics,
        layout.width,
        counters,
    ]
    text = json.dumps(described)
    digest = hashlib.sha256(text.encode())
    digits = digest.hexdigest()
    return digits[:16]
