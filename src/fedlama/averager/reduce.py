"""How the ranks' numbers are added up: by all-reduce, or from the messages that every rank decoded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedlama.averager.ranks import Ranks
from fedlama.base import RunError
from fedlama.compress import Channel, Decoded, Place
from fedlama.core import Layout
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

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices over the ranks: one all-reduce of one packed buffer."""
        mean = pack(self.own, slices) / self.clients
        self.ranks.sum_(mean)
        return mean

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Mean over ranks of ‖u_l − x_l‖², the numerator of Eq. 2: one small all-reduce."""
        squares: list[Tensor] = []
        for layer in due:
            slices = self.layout.layers[layer].slices
            difference = pack(self.own, slices) - pack(mean, slices)
            squares.append(difference.double().square().sum())
        squared = torch.stack(squares) / self.clients
        self.ranks.sum_(squared)
        self.discrepancy_bytes += squared.nbytes
        spread = dict(zip(due, squared.tolist(), strict=True))
        for layer, value in spread.items():
            if not math.isfinite(value):
                name = self.layout.layers[layer].name
                raise RunError(
                    f"{name} is not finite on some rank: the training diverged"
                )
        return spread


class GatheredReduce:
    """Adds up what every rank decoded from all messages: the same numbers in the same order everywhere.

    Arguments:
        uplink: The code.
        anchor: The row that the messages change.
        messages: What was decoded, by rank.
        place: Where the round belongs.
    """

    def __init__(
        self, uplink: Channel, anchor: Tensor, messages: Sequence[Decoded], place: Place
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
        first, *others = self.messages
        total = pack(first.row, slices).double()
        for message in others:
            total += pack(message.row, slices).double()
        mean_change = total.to(self.anchor.device) / self.clients
        anchor = pack(self.anchor, slices).double()
        mean = anchor + mean_change
        return mean.to(self.anchor.dtype)

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² as it would be without the code, from the norms that travelled."""
        mean_sq: dict[int, float] = {}
        for layer in due:
            slices = self.uplink.layout.layers[layer].slices
            before = pack(self.anchor, slices)
            after = pack(mean, slices)
            moved = after.double() - before.double()
            square = torch.dot(moved, moved)
            mean_sq[layer] = float(square)
        equal_weight = 1 / self.clients
        weights = [equal_weight] * self.clients
        return self.uplink.spread(weights, self.messages, mean_sq, self.place)
