"""What a message to clients is made of: what every task says alike, and the numbers that go with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedlama.compress import Codec
from fedlama.flower.packing import Packed
from fedlama.rows import Grouping


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What every task of a run says alike.

    Arguments:
        run: Marks the states that clients keep; no draw depends on it.
        seed: The run's.
        iterations: How many global steps the run has.
        grouping: What is averaged as one, "tensor" or "module".
        layout: A digest of the model's layers.
        rule: The local rule that the server takes part in; empty where it takes none.
        uplink: The code of what clients send.
        downlink: The code of what clients that stay are sent.
    """

    run: str
    seed: int
    iterations: int
    grouping: Grouping
    layout: str
    rule: str
    uplink: Codec | None
    downlink: Codec | None


@dataclass(frozen=True)
class Shipment:
    """The numbers in a message to clients.

    Arguments:
        layers: The layers among them.
        packed: Those of the layers, with what the local rule sends behind them.
        beside: How many bytes the local rule sends.
        place: Where the message belongs, if it is coded.
    """

    layers: list[int]
    packed: Packed
    beside: int
    place: dict[str, Any] | None
