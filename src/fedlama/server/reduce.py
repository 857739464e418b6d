"""The door for runtimes: how the clients' numbers are added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from fedlama.core import Layout
from fedlama.rows import pack


class Reduce(Protocol):
    """What a server learns from the clients of one round. Weights add up to one.

    The simulator adds exactly over its processes, the averager by all-reduce, a deployment over a list of updates.
    `clients` is how many were averaged.
    """

    @property
    def clients(self) -> int:
        """How many clients are averaged."""
        ...

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices, one behind the other."""
        ...

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² for every due layer, where the row `mean` holds u_l: the numerator of Eq. 2."""
        ...


class ListReduce:
    """Rows that are all at hand, as a deployment has them: a list of updates.

    Arguments:
        layout: Where the layers are in a row.
        rows: One row per client.
        weights: What each client weighs; they need not add up to one.
    """

    def __init__(self, layout: Layout, rows: Sequence[Tensor], weights: Sequence[float]) -> None:
        self.layout = layout
        self.rows = rows
        total = sum(weights)
        self.weights = [weight / total for weight in weights]

    @property
    def clients(self) -> int:
        """How many updates there are."""
        return len(self.rows)

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices, one behind the other, added up in float64."""
        total = pack(self.rows[0], slices).double() * self.weights[0]
        for row, weight in zip(self.rows[1:], self.weights[1:], strict=True):
            total += pack(row, slices).double() * weight
        return total.to(self.rows[0].dtype)

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² for every due layer."""
        result: dict[int, float] = {}
        for layer in due:
            squares = 0.0
            for part in self.layout.layers[layer].slices:
                for row, weight in zip(self.rows, self.weights, strict=True):
                    difference = mean[part].double() - row[part].double()
                    squares += weight * float(difference.square().sum())
            result[layer] = squares
        return result
