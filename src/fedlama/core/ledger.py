"""What a run cost: κ_l and C = Σ_l dim(u_l)·κ_l (Eq. 5), and bytes up and down, layer by layer.

Bytes are summed over clients and cover every number that travels, the statistics included; C covers parameters only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedlama.base.plain import with_tuples
from fedlama.core.layers import Layout

BYTES_PER_NUMBER = 4  # float32


@dataclass(frozen=True)
class Ledger:
    """A running account; every `charge_…` returns the next one."""

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

    def charge_downlink(self, *, entering: int, staying: int, averaged: Sequence[int]) -> Ledger:
        """As a round starts: the whole model to clients that enter, the layers just averaged to those that stay."""
        fresh = set(averaged)
        down = [
            charged + BYTES_PER_NUMBER * size * (entering + (staying if index in fresh else 0))
            for index, (charged, size) in enumerate(zip(self.layer_downlink, self.sizes, strict=True))
        ]
        statistics = BYTES_PER_NUMBER * self.statistics_size * (entering + (staying if fresh else 0))
        return replace(self, layer_downlink=tuple(down), statistics_downlink=self.statistics_downlink + statistics)

    def charge_uplink(self, *, encoded: Mapping[int, int], statistics: int, aggregated: bool = True) -> Ledger:
        """As a round ends: `encoded[l]` bytes for each due layer, and the statistics' bytes, summed over clients.

        Bytes that were sent count also where nothing came of them (`aggregated=False`).
        """
        up = [charged + encoded.get(index, 0) for index, charged in enumerate(self.layer_uplink)]
        counts = [count + (aggregated and index in encoded) for index, count in enumerate(self.aggregations)]
        return replace(
            self,
            layer_uplink=tuple(up),
            aggregations=tuple(counts),
            statistics_uplink=self.statistics_uplink + statistics,
        )

    def plain_bytes(self, due: Sequence[int], clients: int) -> dict[int, int]:
        """What uncompressed float32 slices of the due layers weigh, summed over clients."""
        return {index: BYTES_PER_NUMBER * self.sizes[index] * clients for index in due}

    def plain_statistics_bytes(self, clients: int) -> int:
        """What the statistics weigh as float32, summed over clients."""
        return BYTES_PER_NUMBER * self.statistics_size * clients

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
        full = -(-steps // base_interval) * sum(self.sizes)
        return self.communication_cost / full if full else 0.0
