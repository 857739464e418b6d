"""How the updates of a round are added up: the Flower runtime's Reduce."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlama.core import Layout, RoundPlan
from fedlama.flower.updates import Update
from fedlama.rows import exact_means, magnitudes, squared_distances
from fedlama.server.reduce import spread_of_layers
from fedlama.training.coding import Uplink
from fedlama.training.position import Position


class UpdatesReduce:
    """Adds up the updates that count, as the simulator does: to the same bits, in any order.

    Arguments:
        layout: The model's.
        updates: Those that count.
        weights: What each weighs; they add up to one.
        uplink: Their code, if any.
        position: Where the run stood before the round.
        plan: The round.
    """

    def __init__(
        self,
        layout: Layout,
        updates: Sequence[Update],
        weights: Sequence[float],
        *,
        uplink: Uplink | None,
        position: Position,
        plan: RoundPlan,
    ) -> None:
        self.layout = layout
        self.rows = torch.stack(
            [update.row for update in updates if update.row is not None]
        )
        self.decoded = [
            update.decoded for update in updates if update.decoded is not None
        ]
        self.weights = list(weights)
        self.uplink = uplink
        self.position = position
        self.plan = plan

    @property
    def clients(self) -> int:
        """How many updates count."""
        return len(self.rows)

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices, one behind the other.

        Arguments:
            slices: Which numbers of the rows.
        """
        of_clients = magnitudes(self.rows, slices)
        largest = of_clients.amax(dim=0).tolist()

        def sum_over_processes(sums: Tensor) -> None:
            """Nothing to add: all updates are in this process."""

        return exact_means(
            rows_CP=self.rows,
            weights=self.weights,
            slices=slices,
            largest=largest,
            sum_=sum_over_processes,
        )

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² for every due layer; of coded updates as it would be without the code.

        Arguments:
            mean: A row with the averages.
            due: The layers.
        """
        if self.uplink is not None:
            return self.uplink.spread(
                weights=self.weights,
                messages=self.decoded,
                mean=mean,
                position=self.position,
                plan=self.plan,
            )

        slices = self.layout.slices_of(due)
        squares = squared_distances(mean, self.rows, slices)
        return spread_of_layers(self.layout, due, squares, self.weights)
