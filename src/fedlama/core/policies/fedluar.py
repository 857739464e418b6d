"""FedLUAR: "Layer-wise Update Aggregation with Recycling for Communication-Efficient Federated Learning",
NeurIPS 2025 (arXiv 2503.11146).

As in the released code: after each round `recycled` kernels are drawn without replacement with probabilities
proportional to 1/s_l, where s_l = ‖Δ_l‖ / (‖x_l‖ + 1e-6) is how far the last average moved the layer. In the next round
these are not uploaded, and the server applies their last averaged change once more. There is no limit on how often.
All other layers are averaged as in FedAvg.

Where ours differs: x_l is the layer before the change, and the change is what the server's rule made of the average.
What a recycled layer becomes is sent to every client and counted there, as clients that have just entered cannot know
the last change. BatchNorm's statistics are averaged in every round. Which layers are kernels is the model's
`adaptive` layers, so patterns can choose others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, Any

from fedlama.base import InputError, Limits, Seed, check_options, random_key
from fedlama.core.layers import Layer
from fedlama.core.policy import (
    RECYCLED,
    Evidence,
    PolicyState,
    RoundPlan,
)
from fedlama.core.rounds import advance, plan_by_intervals

SMALL_NORM = 1e-6  # as published: a layer of zeros has a score


@dataclass(frozen=True)
class FedLUAR:
    """Every round some of the layers that move least are not uploaded: the server repeats their last change.

    Arguments:
        interval: How many steps lie between two rounds.
        recycled: δ, how many of the adaptive layers are recycled in a round.
        seed: Decides which are drawn, together with how far each has moved.
    """

    interval: Annotated[int, Limits(minimum=1)]
    recycled: Annotated[int, Limits(minimum=0)]
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def base_interval(self) -> int:
        """The interval: FedAvg at it is the 100 % of costs."""
        return self.interval

    @property
    def longest_cycle(self) -> int:
        """After every round all copies of all layers are equal."""
        return self.interval

    @property
    def uses(self) -> tuple[str, ...]:
        """How far a layer moved, and how large it is."""
        return ("moved", "norm", RECYCLED)

    def start(self, layers: Sequence[Layer]) -> PolicyState:
        """The state before the first step: nothing can be recycled before it was averaged once."""
        adaptive = sum(layer.adaptive for layer in layers)
        if self.recycled >= adaptive:
            raise InputError(
                f"policy.recycled = {self.recycled} must be less than the number of adaptive layers, {adaptive}"
            )
        count = len(layers)
        own: dict[str, Any] = {"scores": [None] * count, "recycled": []}
        return PolicyState.at_start([self.interval] * count, own)

    def next(self, state: PolicyState, iterations: int) -> RoundPlan:
        """The next round of a run of `iterations` steps: FedAvg's, but for the layers that are recycled."""
        of_fedavg = plan_by_intervals(state, iterations, self.interval)
        recycled: list[int] = state.own["recycled"]
        averaged: list[int] = []
        for layer in of_fedavg.due:
            if layer not in recycled:
                averaged.append(layer)
        return replace(
            of_fedavg,
            due=tuple(averaged),
            recycled=tuple(recycled),
        )

    def observe(
        self,
        state: PolicyState,
        plan: RoundPlan,
        evidence: Evidence,
        layers: Sequence[Layer],
    ) -> PolicyState:
        """The state after a round: the layers that were averaged have a new score, and the next ones are drawn."""
        after = advance(state, plan, evidence, layers)
        scores = list(state.own["scores"])
        for layer in plan.due:
            # A recycled layer keeps its score: the server repeated a change that was scored before.
            scores[layer] = score(evidence.moved, evidence.norm, layer)
        own: dict[str, Any] = {
            "scores": scores,
            "recycled": self._draw(after.round, scores, layers),
        }
        return replace(after, own=own)

    def _draw(
        self, round_: int, scores: Sequence[float], layers: Sequence[Layer]
    ) -> list[int]:
        """The layers that the next round recycles: drawn without replacement, proportionally to 1/s_l.

        The layer whose exponential clock of rate 1/s_l rings first is a draw proportional to 1/s_l, the one that rings
        next is such a draw among the others, and so on.
        """
        key = random_key(self.seed, "recycle", round_)
        clocks = Random(key)
        rings: list[tuple[float, int]] = []
        for index, layer in enumerate(layers):
            # Drawn for every layer, so that a draw depends on no other layer's kind.
            uniform = 1.0 - clocks.random()
            waited = -math.log(uniform)
            if layer.adaptive:
                rings_at = waited * scores[index]
                rings.append((rings_at, index))
        rings.sort()
        first = rings[: self.recycled]
        drawn = [index for _, index in first]
        return sorted(drawn)

    def __str__(self) -> str:
        return f"FedLUAR({self.interval}, {self.recycled})"


def score(moved: Mapping[int, float], norm: Mapping[int, float], layer: int) -> float:
    """s_l: how far the layer moved, relative to its norm."""
    change = math.sqrt(moved[layer])
    length = math.sqrt(norm[layer])
    return change / (length + SMALL_NORM)
