"""What most policies share: a round where each layer has an interval, and d_l (Eq. 2) after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedlama.core.layers import Layer
from fedlama.core.policy import Evidence, PolicyState, RoundPlan


def plan_by_intervals(
    state: PolicyState, iterations: int, cycle_steps: int
) -> RoundPlan:
    """The next round where each layer has an interval and everything is averaged every `cycle_steps` steps.

    A round lasts until the next layer falls due. The last round of a run averages everything.

    Arguments:
        state: Where the run stands.
        iterations: How many steps the whole run has.
        cycle_steps: After how many steps everything is averaged.
    """
    into_cycle = state.step - state.cycle_start
    cycle_left = cycle_steps - into_cycle
    cycle_end = min(state.cycle_start + cycle_steps, iterations)
    cycle = range(state.cycle_start, cycle_end)

    # Nothing is averaged before the first layer falls due, so clients train until then without a break.
    steps = cycle_left
    for interval in state.intervals:
        until_due = interval - into_cycle % interval
        steps = min(steps, until_due)
    run_left = iterations - state.step
    steps = min(steps, run_left)

    # A cycle that the run's end cuts short measured less than others, and no cycle follows that could use it.
    is_whole = steps == cycle_left
    if is_whole or steps == run_left:
        every_layer = range(len(state.intervals))
        return RoundPlan(
            steps=steps,
            due=tuple(every_layer),
            cycle=cycle,
            ends_cycle=True,
            adjusts=is_whole,
        )

    after = into_cycle + steps
    due: list[int] = []
    for layer, interval in enumerate(state.intervals):
        if after % interval == 0:
            due.append(layer)
    return RoundPlan(
        steps=steps,
        due=tuple(due),
        cycle=cycle,
        ends_cycle=False,
    )


def advance(
    state: PolicyState, plan: RoundPlan, evidence: Evidence, layers: Sequence[Layer]
) -> PolicyState:
    """The state after a round: time has passed, and the due layers have a new discrepancy. Intervals stay.

    Arguments:
        state: Where the run stood before the round.
        plan: The round.
        evidence: What it showed.
        layers: The model's.
    """
    step = state.step + plan.steps
    discrepancy = list(state.discrepancy)
    synchronised_at = list(state.synchronised_at)

    for layer in plan.due:
        # Eq. 2: d_l = Σ_i w_i‖u_l − x_l^i‖² / (τ_l · dim(u_l)), with the steps that were taken for τ_l: the run's end
        # may cut an interval.
        steps_apart = step - state.synchronised_at[layer]
        size = layers[layer].size
        discrepancy[layer] = evidence.spread[layer] / (steps_apart * size)
        synchronised_at[layer] = step
    for layer in plan.recycled:
        # All copies took the same change, so they are equal; nobody measured how far they were apart.
        synchronised_at[layer] = step
    if plan.trained is not None:
        for layer in range(len(layers)):
            if layer in plan.trained:
                continue
            # Copies that were equal and were left alone are still equal: their drift begins later.
            was_equal = state.synchronised_at[layer] == state.step
            if was_equal:
                synchronised_at[layer] = step

    after = replace(
        state,
        discrepancy=tuple(discrepancy),
        synchronised_at=tuple(synchronised_at),
        step=step,
        round=state.round + 1,
    )
    if plan.ends_cycle:
        return replace(after, cycle=state.cycle + 1, cycle_start=step)
    return after
