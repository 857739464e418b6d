"""The door for runtimes: how the clients' numbers are added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from fedlama.core import Layout
from fedlama.rows import pack


class Reduce(Protocol):
    """What a server learns from the clients of one round. Weights add up to one.

    The simulator adds exactly over its processes, the averager by all-reduce, the Flower strategy over the replies.
    """

    @property
    def clients(self) -> int:
        """How many clients are averaged."""
        ...

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices, one behind the other.

        Arguments:
            slices: Parts of a row.
        """
        ...

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² for every due layer: the numerator of Eq. 2.

        Arguments:
            mean: A row with u_l, the average, in the place of every due layer.
            due: The numbers of the layers that are averaged.
        """
        ...


def weighted_sum(weights: Sequence[float], values: Sequence[float]) -> float:
    """Σ_i w_i v_i over the clients, the same in every runtime.

    Arguments:
        weights: What each client weighs.
        values: A number of each.
    """
    # Added one by one: from Python 3.12 on, sum() makes up for rounding.
    total = 0.0
    for weight, value in zip(weights, values, strict=True):
        total += weight * value
    return total


def spread_of_layers(
    layout: Layout, due: Sequence[int], squares: Tensor, weights: Sequence[float]
) -> dict[int, float]:
    """Σ_i w_i ‖u_l − x_l^i‖² for every due layer, from distances of slices.

    Arguments:
        layout: Where the layers are in a row.
        due: The layers.
        squares: ‖u − x^i‖² of each client and each slice of these layers, in their order: [clients, slices].
        weights: What each client weighs.
    """
    # One list per slice; a layer may have several.
    by_slice = iter(squares.T.tolist())
    spread: dict[int, float] = {}
    for layer in due:
        total = 0.0
        for _ in layout.layers[layer].slices:
            of_clients = next(by_slice)
            total += weighted_sum(weights, of_clients)
        spread[layer] = total
    return spread


class ListReduce:
    """Rows that are all at hand, as a deployment has them: a list of updates.

    Arguments:
        layout: Where the layers are in a row.
        rows: One row per client.
        weights: What each client weighs; they need not add up to one.
    """

    def __init__(
        self, layout: Layout, rows: Sequence[Tensor], weights: Sequence[float]
    ) -> None:
        total = sum(weights)
        # As `Reduce` promises: rules and Eq. 2 take means for granted.
        self.layout = layout
        self.rows = rows
        self.weights = [weight / total for weight in weights]

    @property
    def clients(self) -> int:
        """How many updates there are."""
        return len(self.rows)

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices, one behind the other, added up in float64."""
        # The first row's numbers become the sum: no row of zeros is made for it.
        total: Tensor | None = None
        for row, weight in zip(self.rows, self.weights, strict=True):
            values = pack(row, slices).double()
            values *= weight
            if total is None:
                total = values
            else:
                total += values
        assert total is not None, "an average needs a client"
        first = self.rows[0]
        return total.to(first.dtype)

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² for every due layer."""
        spread: dict[int, float] = {}
        for layer in due:
            slices = self.layout.layers[layer].slices
            total = 0.0
            for part in slices:
                target = mean[part].double()
                for row, weight in zip(self.rows, self.weights, strict=True):
                    square = _squared_distance(target, row[part])
                    total += weight * square
            spread[layer] = total
        return spread


def _squared_distance(target: Tensor, values: Tensor) -> float:
    """‖u − x‖² of a `target` in float64."""
    difference = target - values.double()
    squares = difference.square()
    return float(squares.sum())
