"""Tasks: what a client is to do in one round, and the numbers that go with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from flwr.app import Message, RecordDict

from fedlama.base import InputError
from fedlama.core import Layout
from fedlama.flower.packing import Packed
from fedlama.flower.wire import from_record, to_record
from fedlama.rows import Grouping

PROTOCOL = 3

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
class Download:
    """What came with a task.

    Arguments:
        layers: The layers that the client is sent.
        beside: What its local rule is sent beside them.
    """

    layers: Packed
    beside: bytes


def task_record(task: Task, packed: Packed) -> RecordDict:
    """The content of the message to a client.

    Arguments:
        task: What it is to do.
        packed: The layers that it is sent, with what its local rule is sent behind them.
    """
    return to_record(asdict(task), packed)


def read_task(message: Message) -> tuple[Task, Download]:
    """What a client was sent: its task, and the numbers that go with it.

    Arguments:
        message: Flower's.
    """
    try:
        text, packed = from_record(message.content)
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
