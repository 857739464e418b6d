"""How the global model changes from round to round: repeated, remembered, smoothed over time, measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from fedlama.core import Layout, RoundPlan
from fedlama.server.state import LAST_CHANGE, ServerState


def recycle(
    layout: Layout,
    recycled: Sequence[int],
    row: Tensor,
    *,
    anchor: Tensor,
    slots: Mapping[str, Tensor],
) -> None:
    """Change the layers that are recycled as they were changed last.

    Arguments:
        layout: Where the layers are in a row.
        recycled: The layers.
        row: The server's new row, changed in place.
        anchor: The row before the round.
        slots: The server's; only a policy that recycles has the last change among them.
    """
    for part in layout.slices_of(recycled):
        last_change = slots[LAST_CHANGE]
        repeated = last_change[part]
        row[part] = anchor[part] + repeated


def note_last_change(
    layout: Layout,
    due: Sequence[int],
    row: Tensor,
    *,
    anchor: Tensor,
    slots: Mapping[str, Tensor],
) -> None:
    """Keep how the due layers changed, where somebody needs it.

    Arguments:
        layout: Where the layers are in a row.
        due: The layers that were averaged.
        row: The server's new row, as clients will have it.
        anchor: The row before the round.
        slots: The server's; that of the last change is updated in place.
    """
    if LAST_CHANGE not in slots:
        return
    last_change = slots[LAST_CHANGE]
    for part in layout.slices_of(due):
        last_change[part] = row[part] - anchor[part]


def move_average(
    average: Tensor,
    row: Tensor,
    *,
    state: ServerState,
    plan: RoundPlan,
    average_steps: int,
) -> None:
    """Let the moving average follow the model, by the steps since it last did: alike under every policy.

    Arguments:
        average: The moving average, changed in place.
        row: The server's new row.
        state: The state before the round.
        plan: The round, which ends a cycle.
        average_steps: Over how many steps the average reaches back.
    """
    # By cycles, at whose ends all layers are new: between them it would mix layers of different ages.
    cycle_end = state.step + plan.steps
    steps = cycle_end - state.policy_state.cycle_start
    kept = math.exp(-steps / average_steps)
    if state.policy_state.cycle == 0:
        # There is nothing to keep yet but zeros.
        kept = 0.0
    average.mul_(kept)
    average.add_(row, alpha=1 - kept)


def movement(
    layout: Layout, due: Sequence[int], *, before: Tensor, after: Tensor
) -> tuple[dict[int, float], dict[int, float]]:
    """How far every due layer moved, ‖y_l − a_l‖², and how large it was, ‖a_l‖².

    Arguments:
        layout: Where the layers are in a row.
        due: The layers that were averaged.
        before: The row with a_l, after the synchronisation before.
        after: The row with y_l, after this one.
    """
    moved: dict[int, float] = {}
    norm: dict[int, float] = {}
    for layer in due:
        moved[layer] = 0.0
        norm[layer] = 0.0
        for part in layout.layers[layer].slices:
            anchor = before[part].double()
            change = after[part].double() - anchor
            moved[layer] += _squared_norm(change)
            norm[layer] += _squared_norm(anchor)
    return moved, norm


def _squared_norm(values: Tensor) -> float:
    squares = values.square()
    return float(squares.sum())
