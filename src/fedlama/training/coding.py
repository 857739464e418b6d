"""Coded uploads in the simulator: every client's due layers become what the server would decode.

The entropy coder does not run: a message is charged what its length would be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedlama.compress import Channel, Codec, Decoded, MessagePlace
from fedlama.compress.numbers import NotCodableError
from fedlama.compress.scratch import kept_memory
from fedlama.core import Policy, RoundPlan, shortest_interval
from fedlama.core.layers import ALIGNMENT
from fedlama.server import LAST_CHANGE
from fedlama.training.cohorts import Cohort
from fedlama.training.figures import figures_of, figures_per_message, message_of
from fedlama.training.position import Position


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

    @property
    def keeps_on_clients(self) -> bool:
        """Whether clients keep something for the next message, such as the residual of error feedback."""
        channel = self.channel
        return bool(channel.slots) or channel.codec.wants_warm

    def place(self, position: Position, plan: RoundPlan, client: int) -> MessagePlace:
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

        A row that is not finite stays as it is: no code can hold it, and the server will refuse it. One whose numbers
        are too large for a message is made infinite, so that it is refused in the same way.
        """
        slices = self.layout.slices_with_statistics(plan.due)
        stretches = joined(slices)
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
            for row_index in cohort.present_here():
                row = cohort.rows[row_index]
                for part in stretches:
                    torch.sub(
                        row[part],
                        anchor[part],
                        out=difference[part],
                    )
                if not _is_finite(difference, stretches, slices):
                    continue
                try:
                    message = self._coded(difference, cohort, row_index, position, plan)
                except NotCodableError:
                    # By slices: what aligns them stays zero.
                    for part in slices:
                        row[part] = math.inf
                    continue
                for part in stretches:
                    torch.add(
                        anchor[part],
                        difference[part],
                        out=row[part],
                    )
                figures[row_index] = figures_of(message, plan.due)
        return figures

    def _coded(
        self,
        difference: Tensor,
        cohort: Cohort,
        row_index: int,
        position: Position,
        plan: RoundPlan,
    ) -> Decoded:
        """Replace a difference by what the server decodes of it."""
        client = cohort.clients[cohort.mine[row_index]]
        own: dict[str, Tensor] = {}
        for slot in self.channel.slots:
            of_all = cohort.slots[slot.name]
            own[slot.name] = of_all[row_index]

        place = self.place(position, plan, client)
        return self.channel.simulate(
            difference,
            plan.due,
            place,
            anchor=position.row,
            own=own,
            warm=position.server_state.slots.get(LAST_CHANGE),
            out=difference,
        )

    def width(self, plan: RoundPlan) -> int:
        """How many numbers are known of each message."""
        return figures_per_message(plan.due)

    def messages(self, figures: Tensor, due: Sequence[int]) -> list[Decoded]:
        """Back from `code`, for all clients."""
        return [message_of(numbers, due) for numbers in figures.tolist()]

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
                square += _squared_distance(mean[part], position.row[part])
            mean_sq[layer] = square

        # Clients that were excluded weigh nothing, and what their messages say must not count
        heard_weights: list[float] = []
        heard_messages: list[Decoded] = []
        for index, weight in enumerate(weights):
            if weight:
                heard_weights.append(weight)
                heard_messages.append(messages[index])
        return self.channel.spread(
            heard_weights,
            heard_messages,
            mean_sq,
            self.place(position, plan, client=0),
        )


def check_window(codec: Codec | None, policy: Policy, window_steps: int) -> None:
    """Let an uplink refuse a window that does not fit it.

    Every interval is a multiple of the shortest one and divides the window. So what can be shared out over the rounds
    of the layers that are synchronised most often, such as a profile, fits all other layers, too.

    Arguments:
        codec: The code of what clients send, if any.
        policy: Which layers are averaged when.
        window_steps: How many steps a cohort stays.
    """
    if codec is None:
        return
    shortest = shortest_interval(policy)
    most_rounds = max(1, window_steps // shortest)
    codec.check_window(most_rounds)


def place_in_window(
    position: Position,
    plan: RoundPlan,
    client: int,
    *,
    window_steps: int,
    base_interval: int,
) -> MessagePlace:
    """Where a message belongs: its round and client, and how far the window has come.

    Arguments:
        position: Where the run stands before the round.
        plan: The round.
        client: Whose message it is; 0 for the server's own.
        window_steps: How many steps a cohort stays.
        base_interval: τ', how many steps a round has at least.
    """
    begins = position.step % window_steps
    ends = begins + plan.steps
    round_in_window, rounds_per_window = round_within_window(
        begins,
        base_interval,
        window_steps,
    )

    # A layer with an interval of its own counts rounds of that length.
    layer_rounds: dict[int, tuple[int, int]] = {}
    for layer in plan.due:
        interval = position.policy_state.intervals[layer]
        if interval != base_interval:
            layer_rounds[layer] = round_within_window(
                ends - interval,
                interval,
                window_steps,
            )
    return MessagePlace(
        round=position.policy_state.round + 1,
        client=client,
        round_in_window=round_in_window,
        rounds_per_window=rounds_per_window,
        layer_rounds=layer_rounds,
    )


def round_within_window(
    begins: int, interval: int, window_steps: int
) -> tuple[int, int]:
    """Which round of a window, counted from 0, and how many there are, where each takes an interval.

    Arguments:
        begins: How many steps into the window the round begins. Where the run's end cut its interval short, that is no
            multiple of the interval, and before the window where there was no whole one.
        interval: How many steps such a round takes.
        window_steps: How many steps a cohort stays.

    >>> round_within_window(12, interval=6, window_steps=24)  # steps 12 to 18 of 24: the third of four
    (2, 4)
    """
    count = max(1, window_steps // interval)
    rounds_before = math.ceil(begins / interval)
    number = max(0, rounds_before)
    last = count - 1
    return min(number, last), count


def joined(slices: Sequence[slice]) -> list[slice]:
    """The same numbers in fewer slices: neighbours are joined over the zeros that align them.

    Every tensor begins at a multiple of 16, so fewer numbers than that lie between neighbours only.

    >>> joined([slice(0, 10), slice(16, 20), slice(64, 70)])  # 6 numbers lie between the first two, and then 44
    [slice(0, 20, None), slice(64, 70, None)]
    """
    in_order = sorted(slices, key=lambda part: part.start)
    stretches: list[slice] = []
    for part in in_order:
        start = part.start
        if stretches:
            before = stretches[-1]
            gap = start - before.stop
            if gap < ALIGNMENT:
                start = before.start
                stretches.pop()
        stretches.append(slice(start, part.stop))
    return stretches


def _is_finite(
    difference: Tensor, stretches: Sequence[slice], slices: Sequence[slice]
) -> bool:
    """Whether these slices are finite; as a rule they are, which the sums of their stretches tell fastest."""
    # A sum may overflow where no number is infinite: only then is each of them looked at
    sums = [float(difference[part].sum()) for part in stretches]
    if math.isfinite(sum(sums)):
        return True
    for part in slices:
        numbers = difference[part]
        are_finite = numbers.isfinite()
        if not bool(are_finite.all()):
            return False
    return True


def _squared_distance(a: Tensor, b: Tensor) -> float:
    difference = a.double() - b.double()
    return float(torch.dot(difference, difference))
