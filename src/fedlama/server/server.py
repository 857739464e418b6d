"""One server for all runtimes: what happens between "the clients have trained" and "the next round is planned".

The simulator, the averager of torch.distributed programs and a deployment differ only in how numbers are added up
(`Reduce`). Everything is a function of the state before, so a round that comes to nothing is simply not closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedlama.core import Evidence, Layout, Ledger, Message, Policy, PolicyState, RoundPlan, Traffic
from fedlama.local import LocalRule
from fedlama.rows import Slot, unpack
from fedlama.server.mean import Mean
from fedlama.server.reduce import Reduce
from fedlama.server.rule import ServerRule


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


class Server:
    """Plans rounds and closes them.

    Arguments:
        layout: Where the layers are in a row.
        policy: Which layers are averaged when.
        rule: What the server makes of an average.
        local: The clients' rule, of which some keep a part on the server (default: none that does).
    """

    def __init__(
        self, layout: Layout, policy: Policy, *, rule: ServerRule | None = None, local: LocalRule | None = None
    ) -> None:
        self.layout = layout
        self.policy = policy
        self.rule = rule or Mean()
        self.local = local

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What is kept on the server, by whomever."""
        if self.local is None:
            return self.rule.slots
        return (*self.rule.slots, *self.local.server_slots)

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
        self, state: ServerState, plan: RoundPlan, reduce: Reduce, traffic: Traffic, share: float = 1.0
    ) -> ServerState:
        """The state after a round whose clients have trained.

        Arguments:
            state: The state before the round.
            plan: The round.
            reduce: The clients' numbers.
            traffic: What travelled in this round.
            share: Which share of the whole population was averaged.
        """
        slices = [*self.layout.slices_of(plan.due), *self.layout.statistics]
        row = state.row.clone()
        unpack(reduce.mean(slices), row, slices)  # Algorithm 1, line 8
        # The spread is around the clients' average, so it is measured before any rule moves the model off it.
        spread = reduce.spread(row, plan.due)
        slots = self._apply_rules(state, plan, row, share)
        moved, norm = self._movement(state.row, row, plan)
        evidence = Evidence(spread, moved, norm, sent=traffic.up.layers, clients=reduce.clients)
        ledger = state.ledger.charge(traffic, aggregated=plan.due)
        return ServerState(
            policy=self.policy.observe(state.policy, plan, evidence, self.layout.layers),
            ledger=ledger,
            row=row,
            slots=slots,
            broadcast=self._with_rule_rows(ledger.plain_message(plan.due)),
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

    def _apply_rules(self, state: ServerState, plan: RoundPlan, row: Tensor, share: float) -> dict[str, Tensor]:
        """Let the local rule's server part and then the server rule act on each due tensor of `row`; the new slots."""
        slots = {name: values.clone() for name, values in state.slots.items()}
        step = state.step + plan.steps
        for layer in plan.due:
            since = range(state.policy.synchronised_at[layer], step)
            for part in self.layout.layers[layer].slices:
                own = {name: values[part] for name, values in slots.items()}
                anchor = state.row[part]
                mean = row[part]
                merged = mean
                if self.local is not None:
                    merged = self.local.merge(anchor, mean, own, steps=since, share=share)
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
        copies = 1
        if self.local is not None:
            copies += len(self.local.sends)
        layers = {layer: copies * weight for layer, weight in message.layers.items()}
        return Message(layers, message.statistics)
