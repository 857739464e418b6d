"""How the ranks' numbers are added up: by all-reduce, or from the messages that every rank decoded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedlama.averager.ranks import Ranks
from fedlama.base import RunError
from fedlama.compress import Channel, Decoded, MessagePlace
from fedlama.core import Layout, Message
from fedlama.rows import pack


class AllReduce:
    """Adds this rank's row up over the process group.

    Arguments:
        layout: Where the layers are in a row.
        own: This rank's row; only what is averaged need be filled.
        ranks: The processes that average with each other.
    """

    def __init__(self, layout: Layout, own: Tensor, ranks: Ranks) -> None:
        self.layout = layout
        self.own = own
        self.ranks = ranks
        self.discrepancy_bytes = 0  # handed over for the distances

    @property
    def clients(self) -> int:
        """How many ranks there are."""
        return self.ranks.count

    def upload(self, due: Sequence[int]) -> Message:
        """What this rank hands over for the average: its numbers as they are.

        Arguments:
            due: The layers that are averaged; the statistics travel with them.
        """
        width = self.own.element_size()
        layers: dict[int, int] = {}
        for layer in due:
            size = self.layout.layers[layer].size
            layers[layer] = width * size
        statistics = width * self.layout.statistics_size
        return Message(layers, statistics)

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices over the ranks: one all-reduce of one packed buffer."""
        # Divided before it is added up: the sum of many ranks could leave the range of a narrow type.
        mean = pack(self.own, slices) / self.clients
        self.ranks.sum_(mean)
        return mean

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Mean over ranks of ‖u_l − x_l‖², the numerator of Eq. 2: one small all-reduce."""
        distances: list[Tensor] = []
        for layer in due:
            slices = self.layout.layers[layer].slices
            distance = self._squared_distance(mean, slices)
            distances.append(distance)
        mean_distances = torch.stack(distances) / self.clients
        self.ranks.sum_(mean_distances)
        self.discrepancy_bytes += mean_distances.nbytes
        spread = dict(zip(due, mean_distances.tolist(), strict=True))
        # All ranks have the same sums, so all of them stop here, and none waits for another.
        for layer, value in spread.items():
            if not math.isfinite(value):
                name = self.layout.layers[layer].name
                raise RunError(
                    f"{name} is not finite on some rank: the training diverged"
                )
        return spread

    def _squared_distance(self, mean: Tensor, slices: Sequence[slice]) -> Tensor:
        """‖u_l − x_l‖² of this rank, in float64."""
        difference = pack(self.own, slices) - pack(mean, slices)
        squares = difference.double().square()
        # A tensor, so that a GPU is waited for once, and not for every layer
        return squares.sum()


class GatheredReduce:
    """Adds up what every rank decoded from all messages: the same numbers in the same order everywhere.

    Arguments:
        uplink: The code.
        anchor: The row that the messages change.
        messages: What was decoded, by rank.
        place: Where the round belongs.
    """

    def __init__(
        self,
        uplink: Channel,
        anchor: Tensor,
        messages: Sequence[Decoded],
        place: MessagePlace,
    ) -> None:
        self.uplink = uplink
        self.anchor = anchor
        self.messages = messages
        self.place = place

    @property
    def clients(self) -> int:
        """How many ranks there are."""
        return len(self.messages)

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The anchor and the average change of these slices."""
        # In the order of ranks: another order could round to other last bits, and ranks would drift apart.
        first, *others = self.messages
        total = _packed_double(first.row, slices)
        for message in others:
            total += _packed_double(message.row, slices)
        total = total.to(self.anchor.device)
        mean_change = total / self.clients
        anchor = _packed_double(self.anchor, slices)
        mean = anchor + mean_change
        return mean.to(self.anchor.dtype)

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² as it would be without the code, from the norms that travelled."""
        moved: dict[int, float] = {}
        for number in due:
            layer = self.uplink.layout.layers[number]
            moved[number] = self._squared_movement(mean, layer.slices)
        equal_weight = 1 / self.clients
        weights = [equal_weight] * self.clients
        return self.uplink.spread(
            weights,
            self.messages,
            moved,
            self.place,
        )

    def _squared_movement(self, mean: Tensor, slices: Sequence[slice]) -> float:
        """‖u_l − a_l‖²: how far the average of a layer is from the anchor."""
        before = pack(self.anchor, slices)
        after = pack(mean, slices)
        movement = after.double() - before.double()
        square = torch.dot(movement, movement)
        return float(square)


def _packed_double(row: Tensor, slices: Sequence[slice]) -> Tensor:
    return pack(row, slices).double()
