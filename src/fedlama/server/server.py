"""One server for all runtimes: what happens between "the clients have trained" and "the next round is planned".

The simulator, the averager of torch.distributed programs and a deployment differ only in how numbers are added up
(`Reduce`). Everything is a function of the state before, so a round that comes to nothing is simply not closed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedlama.compress import Channel, Place
from fedlama.core import (
    BYTES_PER_NUMBER,
    RECYCLED,
    Evidence,
    Layout,
    Ledger,
    Message,
    Policy,
    PolicyState,
    RoundPlan,
    Traffic,
)
from fedlama.local import LocalRule, steps_taken
from fedlama.rows import Slot, distinct, unpack
from fedlama.server.mean import Mean
from fedlama.server.reduce import Reduce
from fedlama.server.rule import ServerRule

LAST_CHANGE = "last change"  # the slot that low-rank codes start from, and that policies recycle
AVERAGE = "moving average"  # the slot with the model that is evaluated, where that is not the global model itself


@dataclass(frozen=True)
class ServerState:
    """Where the server stands after a round; none of its rows is ever written to.

    Every layer of `row` is as it was last synchronised, which makes `row` the anchor of all that refers to that.
    """

    policy: PolicyState
    ledger: Ledger
    row: Tensor
    slots: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    broadcast: Message = field(default_factory=Message)  # what a client that stays downloads before its next round

    @property
    def step(self) -> int:
        """Global steps taken so far."""
        return self.policy.step

    @property
    def evaluated(self) -> Tensor:
        """The model that is evaluated: the global one, or its moving average where one is kept."""
        return self.slots.get(AVERAGE, self.row)


class Server:
    """Plans rounds and closes them.

    Arguments:
        layout: Where the layers are in a row.
        policy: Which layers are averaged when.
        rule: What the server makes of an average.
        local: The clients' rule, of which some keep a part on the server (default: none that does).
        uplink: The code of what clients send; some start from what the server last changed.
        downlink: The code of what clients that stay are sent. The server adopts what it sent, so that all copies are
            equal after a synchronisation, and keeps the remainder. Where everyone in the next round is new, all are
            sent the model as it is, with that remainder in it.
        average_steps: Over how many steps a moving average of the global model reaches back (default: none is kept).
    """

    def __init__(
        self,
        layout: Layout,
        policy: Policy,
        *,
        rule: ServerRule | None = None,
        local: LocalRule | None = None,
        uplink: Channel | None = None,
        downlink: Channel | None = None,
        average_steps: int | None = None,
    ) -> None:
        self.layout = layout
        self.policy = policy
        self.rule = rule or Mean()
        self.local = local
        self.uplink = uplink
        self.downlink = downlink
        self.average_steps = average_steps

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What is kept on the server, by whomever."""
        slots = list(self.rule.slots)
        if self.local is not None:
            slots += self.local.server_slots
        starts_warm = self.uplink is not None and self.uplink.codec.wants_warm
        if starts_warm or RECYCLED in self.policy.uses:
            slots.append(Slot(LAST_CHANGE, "run"))
        if self.downlink is not None:
            slots += self.downlink.slots
        if self.average_steps is not None:
            slots.append(Slot(AVERAGE, "run"))
        return distinct(slots)

    def start(self, row: Tensor) -> ServerState:
        """The state before the first step, with this global model."""
        slots = {slot.name: torch.zeros_like(row) for slot in self.slots}
        return ServerState(
            policy=self.policy.start(self.layout.layers), ledger=Ledger.open(self.layout), row=row, slots=slots
        )

    def plan(self, state: ServerState, iterations: int) -> RoundPlan:
        """The next round of a run of `iterations` steps."""
        return self.policy.next(state.policy, iterations)

    def download(self, state: ServerState, *, entering: bool) -> Message:
        """What one client downloads before the next round: everything if it enters, else what was just averaged."""
        if entering:
            return self._with_rule_rows(state.ledger.plain_message())
        return state.broadcast

    def close(
        self,
        state: ServerState,
        plan: RoundPlan,
        reduce: Reduce,
        traffic: Traffic,
        *,
        share: float = 1.0,
        paces: Sequence[tuple[float, int | None]] = ((1.0, None),),
        place: Place | None = None,
        window_ends: bool = False,
    ) -> ServerState:
        """The state after a round whose clients have trained.

        Arguments:
            state: The state before the round.
            plan: The round.
            reduce: The clients' numbers.
            traffic: What travelled in this round.
            share: Which share of the whole population was averaged.
            paces: The weight of every client, and how many steps it takes per base interval (None: each of them).
            place: Where the round stands in its window; the draws of a downlink code follow from it.
            window_ends: Whether all clients of the next round are new, and so are sent the whole model as it is.
        """
        slices = [*self.layout.slices_of(plan.due), *self.layout.statistics]
        row = state.row.clone()
        unpack(reduce.mean(slices), row, slices)  # Algorithm 1, line 8
        # The spread is around the clients' average, so it is measured before any rule moves the model off it.
        spread = reduce.spread(row, plan.due)
        slots = self._apply_rules(state, plan, row, share, paces)
        for part in self.layout.slices_of(plan.recycled):
            row[part] = state.row[part] + slots[LAST_CHANGE][part]
        ledger = state.ledger.charge(traffic, aggregated=plan.due)
        broadcast = ledger.plain_message(plan.renewed)
        if self.downlink is not None and window_ends:
            self._settle(state, plan, row, slots)
        elif self.downlink is not None:
            broadcast = self._send_coded(state, plan, row, slots, place or Place(state.policy.round + 1, 0))
        if LAST_CHANGE in slots:
            for part in self.layout.slices_of(plan.due):
                slots[LAST_CHANGE][part] = row[part] - state.row[part]
        if self.average_steps is not None and plan.ends_cycle:
            self._move_average(state, plan, row, slots[AVERAGE], self.average_steps)
        moved, norm = self._movement(state.row, row, plan)
        evidence = Evidence(spread, moved, norm, sent=traffic.up.layers, clients=reduce.clients)
        return ServerState(
            policy=self.policy.observe(state.policy, plan, evidence, self.layout.layers),
            ledger=ledger,
            row=row,
            slots=slots,
            broadcast=self._with_rule_rows(broadcast),
        )

    def discard(self, state: ServerState, traffic: Traffic) -> ServerState:
        """The state after an attempt that came to nothing: what was sent stays counted, and new clients will come.

        Those begin with the server's row, every layer as it was last averaged. So all copies of all layers are equal
        there, and Eq. 2 counts its steps from there.
        """
        everywhere = (state.step,) * len(self.layout.layers)
        return replace(
            state,
            policy=replace(state.policy, synchronised_at=everywhere),
            ledger=state.ledger.charge(traffic),
        )

    def _apply_rules(
        self,
        state: ServerState,
        plan: RoundPlan,
        row: Tensor,
        share: float,
        paces: Sequence[tuple[float, int | None]],
    ) -> dict[str, Tensor]:
        """Let the local rule's server part and then the server rule act on each due tensor of `row`; the new slots."""
        slots = {name: values.clone() for name, values in state.slots.items()}
        step = state.step + plan.steps
        for layer in plan.due:
            since = range(state.policy.synchronised_at[layer], step)
            taken: list[tuple[float, int]] = []
            for weight, pace in paces:
                taken.append((weight, len(steps_taken(pace, self.policy.base_interval, since))))
            for part in self.layout.layers[layer].slices:
                own = {name: values[part] for name, values in slots.items()}
                anchor = state.row[part]
                mean = row[part]
                merged = mean
                if self.local is not None:
                    merged = self.local.merge(anchor, mean, own, steps=since, taken=taken, share=share)
                new = self.rule.apply(
                    anchor,
                    merged,
                    own,
                    count=state.ledger.aggregations[layer],
                    periods=len(since) / self.policy.base_interval,
                )
                if new is not mean:
                    row[part] = new
        return slots

    def _send_coded(
        self, state: ServerState, plan: RoundPlan, row: Tensor, slots: dict[str, Tensor], place: Place
    ) -> Message:
        """Replace what is new in `row` by what clients will decode; what one client's message weighs."""
        assert self.downlink is not None
        difference = row - state.row
        own = {slot.name: slots[slot.name] for slot in self.downlink.slots}
        message = self.downlink.simulate(difference, plan.renewed, place, anchor=state.row, own=own, out=difference)
        for part in [*self.layout.slices_of(plan.renewed), *self.layout.statistics]:
            torch.add(state.row[part], difference[part], out=row[part])
        return message.charged

    def _settle(self, state: ServerState, plan: RoundPlan, row: Tensor, slots: dict[str, Tensor]) -> None:
        """Put into `row` what coded messages left out: whoever comes next is sent all of it."""
        assert self.downlink is not None
        difference = row - state.row
        before = difference.clone()
        own = {slot.name: slots[slot.name] for slot in self.downlink.slots}
        self.downlink.settle(difference, plan.renewed, own)
        row.add_(difference - before)

    def _move_average(
        self, state: ServerState, plan: RoundPlan, row: Tensor, average: Tensor, average_steps: int
    ) -> None:
        """Let the moving average follow the model, by the steps since it last did: alike under every policy."""
        steps = state.step + plan.steps - state.policy.cycle_start
        kept = math.exp(-steps / average_steps)
        if state.policy.cycle == 0:
            kept = 0.0
        average.mul_(kept).add_(row, alpha=1 - kept)

    def _movement(self, before: Tensor, after: Tensor, plan: RoundPlan) -> tuple[dict[int, float], dict[int, float]]:
        """‖u_l − a_l‖² and ‖a_l‖² of every due layer, where the policy looks at them."""
        moved: dict[int, float] = {}
        norm: dict[int, float] = {}
        if not {"moved", "norm"} & set(self.policy.uses):
            return moved, norm
        for layer in plan.due:
            moved[layer] = 0.0
            norm[layer] = 0.0
            for part in self.layout.layers[layer].slices:
                anchor = before[part].double()
                moved[layer] += float((after[part].double() - anchor).square().sum())
                norm[layer] += float(anchor.square().sum())
        return moved, norm

    def _with_rule_rows(self, message: Message) -> Message:
        """The same message with what the local rule sends beside the model, one row of its layers for each name."""
        if self.local is None or not self.local.sends:
            return message
        layers = dict(message.layers)
        for layer in layers:
            layers[layer] += len(self.local.sends) * BYTES_PER_NUMBER * self.layout.layers[layer].size
        return Message(layers, message.statistics)
