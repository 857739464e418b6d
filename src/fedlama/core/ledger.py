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
    """What one client sends or receives at a time.

    Arguments:
        layers: Bytes of each layer in it.
        statistics: Bytes of BatchNorm's statistics.
    """

    layers: Mapping[int, int] = field(default_factory=dict[int, int])
    statistics: int = 0

    def times(self, count: int) -> Message:
        """The bytes of several messages like this one.

        Arguments:
            count: How many.
        """
        layer_bytes: dict[int, int] = {}
        for layer, nbytes in self.layers.items():
            of_all = count * nbytes
            layer_bytes[layer] = of_all
        statistics_bytes = count * self.statistics
        return Message(layer_bytes, statistics_bytes)

    def plus(self, other: Message) -> Message:
        """The bytes of this message and of another one.

        Arguments:
            other: What is sent or received beside this one.
        """
        layer_bytes = dict(self.layers)
        for layer, nbytes in other.layers.items():
            before = layer_bytes.get(layer, 0)
            layer_bytes[layer] = before + nbytes
        statistics_bytes = self.statistics + other.statistics
        return Message(layer_bytes, statistics_bytes)

    @property
    def total(self) -> int:
        """All its bytes."""
        of_layers = sum(self.layers.values())
        return of_layers + self.statistics


def total_of(messages: Sequence[Message]) -> Message:
    """The bytes of several messages.

    Arguments:
        messages: What was sent or received; a message that is in it several times counts as often.
    """
    # Without a codec all clients send the same message: one multiplication instead of a sum over clients and layers.
    counts: dict[int, int] = {}
    different: dict[int, Message] = {}
    for message in messages:
        key = id(message)
        counts[key] = counts.get(key, 0) + 1
        different[key] = message

    total = Message()
    for key, message in different.items():
        count = counts[key]
        of_all = message.times(count)
        total = total.plus(of_all)
    return total


@dataclass(frozen=True)
class Traffic:
    """What travelled, summed over clients.

    Arguments:
        up: From the clients.
        down: To the clients.
    """

    up: Message = field(default_factory=Message)
    down: Message = field(default_factory=Message)


@dataclass(frozen=True)
class Ledger:
    """A running account; `charge` returns the next one.

    Arguments:
        sizes: dim(u_l) of every layer.
        statistics_size: How many numbers the statistics hold.
        aggregations: κ_l, how often each layer was averaged.
        layer_uplink: Bytes of each layer that clients sent.
        layer_downlink: Bytes of each layer that clients received.
        statistics_uplink: Bytes of statistics that clients sent.
        statistics_downlink: Bytes of statistics that clients received.
    """

    sizes: tuple[int, ...]
    statistics_size: int
    aggregations: tuple[int, ...]
    layer_uplink: tuple[int, ...]
    layer_downlink: tuple[int, ...]
    statistics_uplink: int = 0
    statistics_downlink: int = 0

    @staticmethod
    def open(layout: Layout) -> Ledger:
        """An account of a model of this `layout`, with nothing on it.

        Arguments:
            layout: The model's layers.
        """
        nothing = (0,) * len(layout.layers)
        return Ledger(
            sizes=layout.sizes,
            statistics_size=layout.statistics_size,
            aggregations=nothing,
            layer_uplink=nothing,
            layer_downlink=nothing,
        )

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> Ledger:
        """Back from what JSON makes of its fields: `values` by name, where tuples are lists.

        Arguments:
            values: By name; tuples are lists.
        """
        return Ledger(**with_tuples(values))

    def plain_message(self, layers: Sequence[int] | None = None) -> Message:
        """What these `layers` (default: all of them) and the statistics take as uncompressed float32.

        Arguments:
            layers: Their numbers (default: all of them).
        """
        if layers is None:
            layers = range(len(self.sizes))
        layer_bytes: dict[int, int] = {}
        for layer in layers:
            size = self.sizes[layer]
            layer_bytes[layer] = BYTES_PER_NUMBER * size
        statistics_bytes = BYTES_PER_NUMBER * self.statistics_size
        return Message(layer_bytes, statistics_bytes)

    def charge(self, traffic: Traffic, aggregated: Sequence[int] = ()) -> Ledger:
        """The account after this traffic. Bytes that were sent count also where nothing came of them.

        Arguments:
            traffic: What travelled.
            aggregated: The layers that came to be averaged.
        """
        # κ_l of Eq. 5 counts averages; an attempt that came to nothing has bytes only.
        aggregations = list(self.aggregations)
        for layer in aggregated:
            aggregations[layer] += 1

        return replace(
            self,
            aggregations=tuple(aggregations),
            layer_uplink=_plus(self.layer_uplink, traffic.up),
            layer_downlink=_plus(self.layer_downlink, traffic.down),
            statistics_uplink=self.statistics_uplink + traffic.up.statistics,
            statistics_downlink=self.statistics_downlink + traffic.down.statistics,
        )

    @property
    def communication_cost(self) -> int:
        """C of Eq. 5: parameters aggregated over the whole run."""
        cost = 0
        for size, count in zip(self.sizes, self.aggregations, strict=True):
            cost += size * count
        return cost

    @property
    def uplink_bytes(self) -> int:
        """All bytes that clients sent."""
        return sum(self.layer_uplink) + self.statistics_uplink

    @property
    def downlink_bytes(self) -> int:
        """All bytes that clients received."""
        return sum(self.layer_downlink) + self.statistics_downlink

    def relative_cost(self, steps: int, base_interval: int) -> float:
        """C divided by the cost of aggregating the whole model every `base_interval` of these `steps`.

        Arguments:
            steps: How many were taken so far.
            base_interval: τ', the steps between two averages of FedAvg.
        """
        averages = _averages_of_fedavg(steps, base_interval)
        full = averages * sum(self.sizes)
        if not full:
            return 0.0
        return self.communication_cost / full

    def uplink_share(self, steps: int, base_interval: int, *, clients: int) -> float:
        """Uplink bytes divided by those of uncompressed FedAvg at the base interval: all of the model, every time.

        Arguments:
            steps: How many were taken so far.
            base_interval: τ', how many steps lie between two averages of FedAvg.
            clients: How many send in each round.
        """
        averages = _averages_of_fedavg(steps, base_interval)
        whole_model = self.plain_message()
        of_fedavg = averages * clients * whole_model.total
        if not of_fedavg:
            return 0.0
        return self.uplink_bytes / of_fedavg


def _averages_of_fedavg(steps: int, base_interval: int) -> int:
    """How often FedAvg averages in so many steps."""
    # Rounded up: a run averages at its end, also where that cuts an interval short.
    return -(-steps // base_interval)


def _plus(before: Sequence[int], message: Message) -> tuple[int, ...]:
    """The bytes of every layer, with those of a message."""
    after = list(before)
    for layer, nbytes in message.layers.items():
        after[layer] += nbytes
    return tuple(after)
