"""Intervals for a budget of bytes.

A layer that is averaged every τ_l steps drifts by about ½ n_l d_l τ_l on the way, where d_l is the discrepancy of
Eq. 2, and costs c_l / τ_l bytes per step. Minimising Σ_l h_l n_l d_l τ_l for Σ_l c_l / τ_l ≤ B gives
τ_l ∝ √(c_l / (h_l n_l d_l)): with bytes in proportion to size, 1/√(h_l d_l). Against one interval for all layers at
equal bytes this divides the predicted drift by 1 + CV², CV being the size-weighted coefficient of variation of
√(h_l d_l). h_l says how much a layer's drift matters.

Intervals are among τ'·2^k, so that they nest in a cycle, at whose end every layer is averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

from fedlama.base import InputError, Limits, check_options
from fedlama.core.layers import Layer
from fedlama.core.ledger import BYTES_PER_NUMBER
from fedlama.core.policies.fedlama import FedAvg
from fedlama.core.policies.offers import Offer, best_intervals, offers_of, spent
from fedlama.core.policies.turns import due_in_turns, shifts_of
from fedlama.core.policy import (
    Evidence,
    Policy,
    PolicyState,
    RoundPlan,
)
from fedlama.core.rounds import advance, plan_by_intervals

SMALL_NORM = 1e-12  # squared: a layer of zeros has a relative drift, too


@dataclass(frozen=True)
class Budget:
    """Spends a share of FedAvg's uplink where the clients drift apart most.

    The share is of what FedAvg sends at `base_interval` with the same codec, of all layers; BatchNorm's statistics
    travel with every round and are not chosen. Layers that are not adaptive stay at the base interval. Until all layers
    were measured, the adaptive ones have one interval, the shortest that the budget allows.

    Arguments:
        base_interval: τ', the shortest interval of a layer, in steps.
        cycle: The longest interval, after which every layer is averaged, in steps: a multiple of `base_interval`.
        share: The share of FedAvg's bytes that may be spent: from base_interval / cycle to 1. With 1 a cohort may stay
            for any whole number of base intervals, as with FedAvg.
        drift: How a layer's drift counts: "plain", as it is (h_l = 1), or "relative" to the layer's own mean square
            (h_l = n_l / ‖x_l‖²), as suits layers whose scale means nothing because a normalisation follows.
        staggered: Whether layers of the same interval take turns inside a cycle instead of being averaged in the same
            rounds. That costs no byte and levels the rounds, but gaps of one layer are then less even.
    """

    base_interval: Annotated[int, Limits(minimum=1)]
    cycle: Annotated[int, Limits(minimum=1)]
    share: Annotated[float, Limits(above=0, maximum=1)]
    drift: Literal["plain", "relative"] = "plain"
    staggered: bool = False

    def __post_init__(self) -> None:
        check_options(self)
        if self.cycle % self.base_interval:
            raise InputError(
                f"cycle must be a multiple of base_interval = {self.base_interval}, not {self.cycle}"
            )
        smallest_share = self.base_interval / self.cycle
        if self.share < smallest_share:
            raise InputError(
                f"share must be at least base_interval / cycle = {smallest_share:g}, "
                f"not {self.share}: every layer is averaged once per cycle"
            )

    @property
    def longest_cycle(self) -> int:
        """The cycle."""
        return self.cycle

    @property
    def uses(self) -> tuple[str, ...]:
        """The bytes of a layer, and its norm where drift is relative to it."""
        if self.drift == "relative":
            return ("sent", "norm")
        return ("sent",)

    @property
    def ladder(self) -> tuple[int, ...]:
        """The intervals that a layer may have, the shortest first: τ'·2^k as long as they fit, and the cycle."""
        intervals: list[int] = []
        interval = self.base_interval
        while interval < self.cycle:
            # What does not nest in a cycle would not fall due at its end.
            if self.cycle % interval == 0:
                intervals.append(interval)
            interval *= 2
        intervals.append(self.cycle)
        return tuple(intervals)

    def within(self, window: int) -> Policy:
        """FedAvg where the budget is all of FedAvg's bytes: every layer is averaged every time, so cycles can be short.

        Arguments:
            window: For how many steps a cohort stays.
        """
        if self.share < 1 or window % self.cycle == 0:
            return self
        return FedAvg(self.base_interval)

    def start(self, layers: Sequence[Layer]) -> PolicyState:
        """The state before the first step: one interval for all adaptive layers."""
        # Before the first round nobody knows what a codec makes of a layer.
        costs: list[float] = []
        for layer in layers:
            uncompressed = BYTES_PER_NUMBER * layer.size
            costs.append(float(uncompressed))
        norms = [0.0] * len(layers)
        own = {"bytes": costs, "norm": norms}
        intervals = self._uniform(costs, layers)
        return PolicyState.at_start(intervals, own)

    def next(self, state: PolicyState, iterations: int) -> RoundPlan:
        """The next round of a run of `iterations` steps: it lasts until the next layer falls due."""
        if not self.staggered:
            return plan_by_intervals(state, iterations, self.cycle)
        steps, due = self._next_due(state)
        into_cycle = state.step - state.cycle_start
        cycle_end = min(state.cycle_start + self.cycle, iterations)
        cycle = range(state.cycle_start, cycle_end)
        left = iterations - state.step
        if steps >= left:
            # The last round of a run averages everything.
            every_layer = range(len(state.intervals))
            is_whole = into_cycle + left == self.cycle
            return RoundPlan(
                steps=left,
                due=tuple(every_layer),
                cycle=cycle,
                ends_cycle=True,
                adjusts=is_whole,
            )
        ends = into_cycle + steps == self.cycle
        return RoundPlan(
            steps=steps,
            due=tuple(due),
            cycle=cycle,
            ends_cycle=ends,
            adjusts=ends,
        )

    def _next_due(self, state: PolicyState) -> tuple[int, list[int]]:
        """After how many steps the next layers fall due, and which, where layers take turns."""
        into_cycle = state.step - state.cycle_start
        due: list[int] = []
        steps = 0
        while not due:
            # All intervals and shifts are multiples of τ', so nothing falls due in between.
            steps += self.base_interval
            due = due_in_turns(
                into_cycle + steps,
                state.intervals,
                self.base_interval,
                self.cycle,
            )
        return steps, due

    def observe(
        self,
        state: PolicyState,
        plan: RoundPlan,
        evidence: Evidence,
        layers: Sequence[Layer],
    ) -> PolicyState:
        """The state after a round; the intervals are chosen anew at a cycle's end."""
        after = advance(state, plan, evidence, layers)
        own = _learnt(state.own, plan, evidence)
        after = replace(after, own=own)
        # Where no layer drifted, there is nothing to choose by
        has_drift = any(after.discrepancy)
        if not plan.adjusts or not has_drift:
            return after
        intervals = self._choose(after, layers)
        return replace(after, intervals=intervals)

    def shifts(self, intervals: Sequence[int]) -> list[int]:
        """How many steps later than a multiple of its interval each layer is averaged where layers take turns.

        Arguments:
            intervals: τ_l of every layer.
        """
        return shifts_of(intervals, self.base_interval)

    def _allowed(self, costs: Sequence[float]) -> Fraction:
        """The bytes per base interval that may be spent."""
        fedavg = sum(map(Fraction, costs))
        return Fraction(self.share) * fedavg

    def _uniform(
        self, costs: Sequence[float], layers: Sequence[Layer]
    ) -> tuple[int, ...]:
        """The shortest interval for all adaptive layers that the budget allows, or the longest there is."""
        allowed = self._allowed(costs)
        intervals = [self.base_interval] * len(layers)
        for rung in self.ladder:
            for index, layer in enumerate(layers):
                if layer.adaptive:
                    intervals[index] = rung
            if spent(costs, intervals, self.base_interval) <= allowed:
                break
        return tuple(intervals)

    def _choose(self, state: PolicyState, layers: Sequence[Layer]) -> tuple[int, ...]:
        """The intervals for the next cycle, in exact fractions: the same on every machine.

        Every adaptive layer starts at the longest interval, and shortenings are bought with what the budget leaves.
        """
        costs: list[float] = state.own["bytes"]
        intervals: list[int] = []
        offers: list[Offer] = []
        for index, layer in enumerate(layers):
            if not layer.adaptive:
                intervals.append(self.base_interval)
                continue
            intervals.append(self.cycle)
            weight = self._weight(index, state, layers)
            offers += offers_of(
                index,
                self.ladder,
                self.base_interval,
                weight=weight,
                cost=costs[index],
            )
        left = self._allowed(costs) - spent(costs, intervals, self.base_interval)
        return tuple(best_intervals(offers, intervals, left))

    def _weight(
        self, index: int, state: PolicyState, layers: Sequence[Layer]
    ) -> Fraction:
        """h_l n_l d_l: what a step more between two averages of a layer costs in drift."""
        size = layers[index].size
        discrepancy = Fraction(state.discrepancy[index])
        weight = discrepancy * size
        if self.drift == "relative":
            norms: list[float] = state.own["norm"]
            norm = max(norms[index], SMALL_NORM)
            weight *= size / Fraction(norm)
        return weight

    def __str__(self) -> str:
        variants = ""
        if self.drift != "plain":
            variants += f", {self.drift}"
        if self.staggered:
            variants += ", staggered"
        return f"Budget({self.base_interval}, {self.cycle}, {self.share:g}{variants})"


def _learnt(
    own: Mapping[str, Any], plan: RoundPlan, evidence: Evidence
) -> dict[str, Any]:
    """The policy's own state after a round: the bytes of each due layer as encoded, and its norm."""
    bytes_sent = list(own["bytes"])
    norms = list(own["norm"])
    for layer in plan.due:
        # Without an account of bytes, those of float32 stay.
        sent = evidence.sent.get(layer)
        if evidence.clients and sent:
            bytes_sent[layer] = sent / evidence.clients
        if layer in evidence.norm:
            norms[layer] = evidence.norm[layer]
    return {"bytes": bytes_sent, "norm": norms}
