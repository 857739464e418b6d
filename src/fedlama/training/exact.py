"""How the simulator adds up: exactly, over all processes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlama.core import Layout
from fedlama.processes.world import World
from fedlama.rows import exact_means, squared_distances
from fedlama.server.reduce import spread_of_layers
from fedlama.training.coding import Uplink
from fedlama.training.current import Round
from fedlama.training.phases import phase
from fedlama.training.played import Verdict


class ExactReduce:
    """Adds the clients' rows up over all processes, exactly: in any order, to the same bits.

    Arguments:
        layout: Where the layers are in a row.
        current: The round, with its clients.
        verdict: What each of them weighs, and how large their numbers are.
        world: The processes that share the run.
        uplink: The code of what they sent, if any.
    """

    def __init__(
        self,
        layout: Layout,
        current: Round,
        verdict: Verdict,
        world: World,
        uplink: Uplink | None,
    ) -> None:
        self.layout = layout
        self.current = current
        self.cohort = current.cohort
        self.verdict = verdict
        self.world = world
        self.uplink = uplink

    @property
    def clients(self) -> int:
        """How many clients are averaged."""
        return self.cohort.present

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices, one behind the other."""
        weights = self.verdict.weights
        own_weights = [weights[index] for index in self.cohort.mine]
        return exact_means(
            rows_CP=self.cohort.rows,
            weights=own_weights,
            slices=slices,
            largest=self.verdict.largest,
            sum_=self.world.sum_,
        )

    @phase("spread")
    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² of every due layer: the numerator of Eq. 2."""
        if self.uplink is not None:
            # Decoded rows lie further apart than the clients' own: the code's errors would count as drift.
            return self.uplink.spread(
                weights=self.verdict.weights,
                messages=self.verdict.decoded,
                mean=mean,
                position=self.current.position,
                plan=self.current.plan,
            )
        slices = self.layout.slices_of(due)
        squared = torch.zeros(
            len(self.cohort.clients),
            len(slices),
            dtype=torch.float64,
            device=mean.device,
        )
        squared[self.cohort.mine] = squared_distances(mean, self.cohort.rows, slices)
        self.world.sum_(squared)

        return spread_of_layers(
            self.layout,
            due,
            squared,
            self.verdict.weights,
        )
