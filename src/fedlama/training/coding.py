"""Coded uploads in the simulator: every client's due layers become what the server would decode.

The entropy coder does not run: a message is charged what its length would be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedlama.compress import Channel, Codec, Decoded, Place
from fedlama.compress.scratch import kept_memory
from fedlama.core import Message, Policy, RoundPlan
from fedlama.core.layers import ALIGNMENT
from fedlama.server import LAST_CHANGE
from fedlama.training.cohorts import Cohort
from fedlama.training.values import Position


class Uplink:
    """Codes what the clients of a cohort send.

    Arguments:
        channel: The code, for this model.
        window_steps: How many steps a cohort stays.
        base_interval: τ', how many steps a round has at least.
    """

    def __init__(
        self, channel: Channel, *, window_steps: int, base_interval: int
    ) -> None:
        self.channel = channel
        self.layout = channel.layout
        self.window_steps = window_steps
        self.base_interval = base_interval

    def place(self, position: Position, plan: RoundPlan, client: int) -> Place:
        """Where a message belongs: its round and client, and how far the window has come."""
        return place_in_window(
            position,
            plan,
            client,
            window_steps=self.window_steps,
            base_interval=self.base_interval,
        )

    def code(self, cohort: Cohort, position: Position, plan: RoundPlan) -> Tensor:
        """Replace what is due in every row here by what the server decodes; what is known of each message.

        A row that is not finite stays as it is: no code can hold it, and the server will refuse it.
        """
        slices = [*self.layout.slices_of(plan.due), *self.layout.statistics]
        stretches = _stretches(slices)
        anchor = position.row
        # One for all clients, and only what is due is ever computed in it: most of a row may not be.
        difference = torch.zeros_like(anchor)
        figures = torch.zeros(
            len(cohort.mine),
            self.width(plan),
            dtype=torch.float64,
            device=anchor.device,
        )
        with kept_memory():
            for place in cohort.present_here():
                row = cohort.rows[place]
                for part in stretches:
                    torch.sub(row[part], anchor[part], out=difference[part])
                if not _is_finite(difference, stretches, slices):
                    continue
                message = self._coded(difference, cohort, place, position, plan)
                for part in stretches:
                    torch.add(anchor[part], difference[part], out=row[part])
                figures[place] = _figures(message, plan.due)
        return figures

    def _coded(
        self,
        difference: Tensor,
        cohort: Cohort,
        place: int,
        position: Position,
        plan: RoundPlan,
    ) -> Decoded:
        """Replace a difference by what the server decodes of it."""
        client = cohort.clients[cohort.mine[place]]
        return self.channel.simulate(
            difference,
            plan.due,
            self.place(position, plan, client),
            anchor=position.row,
            own={
                slot.name: cohort.slots[slot.name][place] for slot in self.channel.slots
            },
            warm=position.server.slots.get(LAST_CHANGE),
            out=difference,
        )

    def width(self, plan: RoundPlan) -> int:
        """How many numbers are known of each message."""
        return 4 * len(plan.due) + 1

    def messages(self, figures: Tensor, due: Sequence[int]) -> list[Decoded]:
        """Back from `code`, for all clients."""
        count = len(due)
        messages: list[Decoded] = []
        for numbers in figures.tolist():
            weights = [round(weight) for weight in numbers[:count]]
            kept: dict[int, float | None] = {}
            for layer, share in zip(due, numbers[3 * count : 4 * count], strict=True):
                kept[layer] = share
                if math.isnan(share):
                    kept[layer] = None
            messages.append(
                Decoded(
                    row=torch.empty(0),
                    exact_sq=dict(zip(due, numbers[count : 2 * count], strict=True)),
                    decoded_sq=dict(
                        zip(due, numbers[2 * count : 3 * count], strict=True)
                    ),
                    kept=kept,
                    charged=Message(
                        dict(zip(due, weights, strict=True)), round(numbers[4 * count])
                    ),
                )
            )
        return messages

    def spread(
        self,
        weights: Sequence[float],
        messages: Sequence[Decoded],
        mean: Tensor,
        position: Position,
        plan: RoundPlan,
    ) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² as it would be without the code, from the norms that travelled."""
        mean_sq: dict[int, float] = {}
        for layer in plan.due:
            square = 0.0
            for part in self.layout.layers[layer].slices:
                moved = mean[part].double() - position.row[part].double()
                square += float(torch.dot(moved, moved))
            mean_sq[layer] = square
        heard = [index for index, weight in enumerate(weights) if weight]
        return self.channel.spread(
            [weights[index] for index in heard],
            [messages[index] for index in heard],
            mean_sq,
            self.place(position, plan, client=0),
        )


def check_window(codec: Codec | None, policy: Policy, window_steps: int) -> None:
    """Refuse an uplink whose profile does not fit the rounds of a window.

    Every interval is a multiple of the shortest one and divides the window. So a profile that can be shared out over
    the rounds of the layers that are synchronised most often fits all other layers, too.

    Arguments:
        codec: The code of what clients send, if any.
        policy: Which layers are averaged when.
        window_steps: How many steps a cohort stays.
    """
    if codec is None:
        return
    shortest: int = getattr(policy, "shortest_interval", policy.base_interval)
    codec.for_round(0, max(1, window_steps // shortest))


def place_in_window(
    position: Position,
    plan: RoundPlan,
    client: int,
    *,
    window_steps: int,
    base_interval: int,
) -> Place:
    """Where a message belongs: its round and client, and how far the window has come.

    Arguments:
        position: Where the run stands before the round.
        plan: The round.
        client: Whose message it is; 0 for the server's own.
        window_steps: How many steps a cohort stays.
        base_interval: τ', how many steps a round has at least.
    """
    into_window = position.step % window_steps
    after = into_window + plan.steps
    layer_rounds: dict[int, tuple[int, int]] = {}
    for layer in plan.due:
        interval = position.state.intervals[layer]
        if interval != base_interval:
            layer_rounds[layer] = _turn(after - interval, interval, window_steps)
    round_in_window, rounds_per_window = _turn(into_window, base_interval, window_steps)
    return Place(
        round=position.state.round + 1,
        client=client,
        round_in_window=round_in_window,
        rounds_per_window=rounds_per_window,
        layer_rounds=layer_rounds,
    )


def _turn(begins: int, interval: int, window_steps: int) -> tuple[int, int]:
    """Which of how many synchronisations in the window; the run's end may cut the last interval short."""
    count = max(1, window_steps // interval)
    number = max(0, math.ceil(begins / interval))
    return min(number, count - 1), count


def _stretches(slices: Sequence[slice]) -> list[slice]:
    """The same numbers in fewer slices: neighbours are joined over the zeros that align them."""
    result: list[slice] = []
    for part in sorted(slices, key=lambda part: part.start):
        if result and part.start - result[-1].stop < ALIGNMENT:
            result[-1] = slice(result[-1].start, part.stop)
        else:
            result.append(part)
    return result


def _is_finite(
    difference: Tensor, stretches: Sequence[slice], slices: Sequence[slice]
) -> bool:
    """Whether these slices are finite; as a rule they are, which the sums of their stretches tell fastest."""
    total = sum(float(difference[part].sum()) for part in stretches)
    if math.isfinite(total):
        return True
    return all(bool(difference[part].isfinite().all()) for part in slices)


def _figures(message: Decoded, due: Sequence[int]) -> Tensor:
    """Bytes, exact and decoded norms, and what the code keeps, of each due layer; bytes of the statistics."""
    numbers: list[float] = []
    for layer in due:
        charged = message.charged.layers.get(layer, 0)
        numbers.append(charged)
    for layer in due:
        numbers.append(message.exact_sq[layer])
    for layer in due:
        numbers.append(message.decoded_sq[layer])
    for layer in due:
        kept = message.kept[layer]
        if kept is None:
            kept = math.nan
        numbers.append(kept)
    numbers.append(message.charged.statistics)
    return torch.tensor(numbers, dtype=torch.float64)
