"""Algorithm 1: what is due after which steps, and what changes at a cycle's end.

A policy is a frozen value; the run's position is a frozen `PolicyState`. `next` says how many steps to train and which
layers to average after them; `observe` takes the squared distances that were measured and returns the next state.
FedAvg is FedLAMA with factor 1, on the same path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedlama.base.checks import check_whole
from fedlama.base.plain import with_tuples
from fedlama.core.intervals import adjust_intervals, check_intervals
from fedlama.core.layers import Layer


@dataclass(frozen=True)
class Turn:
    """One round: train `steps` steps, then average the layers `due`."""

    steps: int
    due: tuple[int, ...]
    ends_cycle: bool  # every layer is averaged: the global model is whole
    cut: bool = False  # the run ends inside a cycle: nothing is adjusted


@dataclass(frozen=True)
class PolicyState:
    """Where a run stands: everything a policy needs to go on, and nothing else."""

    intervals: tuple[int, ...]
    discrepancy: tuple[float, ...]  # Eq. 2, the latest of every layer
    synchronised_at: tuple[int, ...]  # the global step after which a layer was last averaged
    step: int = 0
    round: int = 0
    cycle: int = 0
    cycle_start: int = 0

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> PolicyState:
        """Back from what JSON makes of it, where tuples are lists."""
        return PolicyState(**with_tuples(values))


@dataclass(frozen=True)
class Policy:
    """Layer-wise periodic averaging: intervals start at `base_interval` and are adjusted at every cycle's end."""

    base_interval: int
    increase_factor: int = 1
    rule: str = "crossing"
    warmup_rounds: int = 0

    def __post_init__(self) -> None:
        check_intervals(self.base_interval, self.increase_factor, self.rule)
        check_whole("warmup_rounds", self.warmup_rounds, least=0)

    @property
    def cycle_steps(self) -> int:
        """Steps after which every layer has been averaged: φτ', or τ' where intervals are only shortened."""
        return self.base_interval * (1 if self.rule == "accelerate" else self.increase_factor)

    def start(self, layers: Sequence[Layer]) -> PolicyState:
        """The state before the first step: every layer at τ' (Algorithm 1, line 1)."""
        count = len(layers)
        return PolicyState((self.base_interval,) * count, (0.0,) * count, (0,) * count)

    def next(self, state: PolicyState, iterations: int) -> Turn:
        """The next round of a run of `iterations` steps: it lasts until the next layer falls due."""
        position = state.step - state.cycle_start
        cycle_left = self.cycle_steps - position
        steps = min(interval - position % interval for interval in (*state.intervals, self.cycle_steps))
        everyone = tuple(range(len(state.intervals)))
        if state.step + steps >= iterations:
            steps = iterations - state.step
            return Turn(steps, everyone, ends_cycle=True, cut=steps < cycle_left)
        if steps == cycle_left:
            return Turn(steps, everyone, ends_cycle=True)
        after = position + steps
        due = tuple(index for index in everyone if after % state.intervals[index] == 0)
        return Turn(steps, due, ends_cycle=False)

    def observe(
        self, state: PolicyState, turn: Turn, squared: Mapping[int, float], layers: Sequence[Layer]
    ) -> PolicyState:
        """The state after a round; `squared[l]` is Σ_i w_i ‖u_l − x_l^i‖² for every layer that was averaged."""
        step = state.step + turn.steps
        discrepancy, synchronised_at = list(state.discrepancy), list(state.synchronised_at)
        for index in turn.due:
            steps_apart = step - state.synchronised_at[index]  # τ_l, except where the run's end cut the interval
            discrepancy[index] = squared[index] / (steps_apart * layers[index].size)  # Eq. 2
            synchronised_at[index] = step
        after = replace(
            state,
            discrepancy=tuple(discrepancy),
            synchronised_at=tuple(synchronised_at),
            step=step,
            round=state.round + 1,
        )
        return self._end_cycle(after, turn, layers) if turn.ends_cycle else after

    def _end_cycle(self, state: PolicyState, turn: Turn, layers: Sequence[Layer]) -> PolicyState:
        intervals = state.intervals
        if not turn.cut and state.round >= self.warmup_rounds:
            intervals = adjust_intervals(  # Algorithm 1, line 11
                state.discrepancy,
                [layer.size for layer in layers],
                base_interval=self.base_interval,
                increase_factor=self.increase_factor,
                adaptive=[layer.adaptive for layer in layers],
                current=state.intervals,
                rule=self.rule,
            )
        return replace(state, intervals=tuple(intervals), cycle=state.cycle + 1, cycle_start=state.step)


class FedLAMA(Policy):
    """The paper's policy: layers that drift least are averaged every `increase_factor · base_interval` steps.

    The first adjustment is made at the first cycle end at or after round `warmup_rounds`.
    """

    def __init__(
        self, base_interval: int, increase_factor: int, rule: str = "crossing", warmup_rounds: int = 0
    ) -> None:
        super().__init__(base_interval, increase_factor, rule, warmup_rounds)

    def __str__(self) -> str:
        rule = "" if self.rule == "crossing" else f", {self.rule}"
        return f"FedLAMA({self.base_interval}, {self.increase_factor}{rule})"


class FedAvg(Policy):
    """The whole model every `interval` steps: FedLAMA with factor 1, bit for bit."""

    def __init__(self, interval: int) -> None:
        super().__init__(interval)

    def __str__(self) -> str:
        return f"FedAvg({self.base_interval})"
