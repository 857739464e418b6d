"""What a run cost: κ_l and C = Σ_l dim(u_l)·κ_l (Eq. 5), and bytes up and down, layer by layer.

Bytes are summed over clients and cover every number that travels, the statistics included; C covers parameters only.
A `Message` is what one client sends or receives, `Traffic` what all clients did, and the `Ledger` adds it up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedlama.base import with_tuples
from fedlama.core.layers import Layout

BYTES_PER_NUMBER = 4  # float32


@dataclass(frozen=True)
class Message:
    """What one client sends or receives at a time: bytes for each layer in it, and for the statistics."""

    layers: Mapping[int, int] = field(default_factory=dict[int, int])
    statistics: int = 0

    def times(self, count: int) -> Message:
        """The bytes of `count` messages like this one."""
        layers = {layer: count * weight for layer, weight in self.layers.items()}
        return Message(layers, count * self.statistics)

    def plus(self, other: Message) -> Message:
        """The bytes of both."""
        layers = dict(self.layers)
        for layer, weight in other.layers.items():
            layers[layer] = layers.get(layer, 0) + weight
        return Message(layers, self.statistics + other.statistics)

    @property
    def total(self) -> int:
        """All its bytes."""
        return sum(self.layers.values()) + self.statistics


@dataclass(frozen=True)
class Traffic:
    """What travelled, summed over clients: `up` from the clients, `down` to them."""

    up: Message = field(default_factory=Message)
    down: Message = field(default_factory=Message)


@dataclass(frozen=True)
class Ledger:
    """A running account; `charge` returns the next one."""

    sizes: tuple[int, ...]
    statistics_size: int
    aggregations: tuple[int, ...]  # κ_l
    layer_uplink: tuple[int, ...]
    layer_downlink: tuple[int, ...]
    statistics_uplink: int = 0
    statistics_downlink: int = 0

    @staticmethod
    def open(layout: Layout) -> Ledger:
        """An account with nothing on it."""
        nothing = (0,) * len(layout.layers)
        return Ledger(layout.sizes, layout.statistics_size, nothing, nothing, nothing)

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> Ledger:
        """Back from what JSON makes of it, where tuples are lists."""
        return Ledger(**with_tuples(values))

    def plain_message(self, layers: Sequence[int] | None = None) -> Message:
        """What these layers (default: all of them) and the statistics weigh as uncompressed float32."""
        chosen = range(len(self.sizes)) if layers is None else layers
        weights = {layer: BYTES_PER_NUMBER * self.sizes[layer] for layer in chosen}
        return Message(weights, BYTES_PER_NUMBER * self.statistics_size)

    def charge(self, traffic: Traffic, aggregated: Sequence[int] = ()) -> Ledger:
        """The account after this traffic, of which the layers `aggregated` came to be averaged.

        Bytes that were sent count also where nothing came of them.
        """
        up = list(self.layer_uplink)
        for layer, weight in traffic.up.layers.items():
            up[layer] += weight
        down = list(self.layer_downlink)
        for layer, weight in traffic.down.layers.items():
            down[layer] += weight
        counts = list(self.aggregations)
        for layer in aggregated:
            counts[layer] += 1
        return replace(
            self,
            aggregations=tuple(counts),
            layer_uplink=tuple(up),
            layer_downlink=tuple(down),
            statistics_uplink=self.statistics_uplink + traffic.up.statistics,
            statistics_downlink=self.statistics_downlink + traffic.down.statistics,
        )

    @property
    def communication_cost(self) -> int:
        """C of Eq. 5: parameters aggregated over the whole run."""
        return sum(size * count for size, count in zip(self.sizes, self.aggregations, strict=True))

    @property
    def uplink_bytes(self) -> int:
        """All bytes that clients sent."""
        return sum(self.layer_uplink) + self.statistics_uplink

    @property
    def downlink_bytes(self) -> int:
        """All bytes that clients received."""
        return sum(self.layer_downlink) + self.statistics_downlink

    def relative_cost(self, steps: int, base_interval: int) -> float:
        """C divided by the cost of aggregating the whole model every `base_interval` of these steps."""
        averages = -(-steps // base_interval)
        full = averages * sum(self.sizes)
        return self.communication_cost / full if full else 0.0
