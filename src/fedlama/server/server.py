"""One server for all runtimes: what happens between "the clients have trained" and "the next round is planned".

The simulator, the averager of torch.distributed programs and the Flower strategy differ only in how they add numbers up
(`Reduce`). Everything is a function of the state before, so a round that comes to nothing is simply not closed.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedlama.compress import Channel, MessagePlace
from fedlama.core import (
    BYTES_PER_NUMBER,
    RECYCLED,
    Evidence,
    Layout,
    Ledger,
    Message,
    Policy,
    RoundPlan,
    Traffic,
    asks_for_movement,
)
from fedlama.core.policy_checks import (
    next_checked,
    observe_checked,
    start_checked,
)
from fedlama.local import LocalRule
from fedlama.rows import ReadOnly, Slot, distinct, views, with_unpacked
from fedlama.server.changes import move_average, movement, note_last_change, recycle
from fedlama.server.downlink import send
from fedlama.server.mean import Mean
from fedlama.server.participants import EVERYONE, Participants
from fedlama.server.reduce import Reduce
from fedlama.server.rule import ServerRule, check_result
from fedlama.server.state import AVERAGE, LAST_CHANGE, ServerState


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
        recycles = RECYCLED in self.policy.uses
        if starts_warm or recycles:
            slots.append(Slot(LAST_CHANGE, "run"))
        if self.downlink is not None:
            slots += self.downlink.slots
        if self.average_steps is not None:
            slots.append(Slot(AVERAGE, "run"))
        return distinct(slots)

    def start(self, row: Tensor) -> ServerState:
        """The state before the first step.

        Arguments:
            row: The global model.
        """
        slots: dict[str, Tensor] = {}
        for slot in self.slots:
            slots[slot.name] = torch.zeros_like(row)

        return ServerState(
            policy_state=start_checked(self.policy, self.layout.layers),
            ledger=Ledger.open(self.layout),
            row=row,
            slots=slots,
        )

    def plan(self, state: ServerState, iterations: int) -> RoundPlan:
        """The next round; InputError if the policy plans one that cannot be played.

        Arguments:
            state: The state before it.
            iterations: How many steps the whole run has.
        """
        return next_checked(
            self.policy,
            state.policy_state,
            iterations,
            layers=len(self.layout.layers),
        )

    def download(self, state: ServerState, *, entering: bool) -> Message:
        """What one client downloads before the next round.

        Arguments:
            state: The state before the round.
            entering: Whether the client is new, and downloads everything; others have all but what was just averaged.
        """
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
        participants: Participants = EVERYONE,
        place: MessagePlace | None = None,
        window_ends: bool = False,
    ) -> ServerState:
        """The state after a round whose clients have trained.

        Arguments:
            state: The state before the round.
            plan: The round.
            reduce: The clients' numbers.
            traffic: What travelled in this round, for the account.
            participants: Who was averaged, for rules and the policy.
            place: Where the round stands in its window; the draws of a downlink code follow from it.
            window_ends: Whether all clients of the next round are new, and so are sent the whole model as it is.
        """
        # u_l, the clients' average of every due layer: Algorithm 1, line 8
        averaged = self.layout.slices_with_statistics(plan.due)
        mean = reduce.mean(averaged)
        # A new row: rules, codes and the policy still look at the one before, the anchor.
        row = with_unpacked(mean, state.row, averaged)
        # The numerator of d_l (Eq. 2), around that average: no rule has moved the model off it yet.
        spread = reduce.spread(row, plan.due)

        # What the server makes of the average; the paper's leaves it as it is.
        slots = self._apply_rules(state, plan, row, participants)
        # Layers that nobody sent move on by themselves, for FedLUAR.
        recycle(self.layout, plan.recycled, row, anchor=state.row, slots=slots)
        # What clients are sent. The server adopts what they will decode, so that all copies are equal.
        broadcast = send(
            downlink=self.downlink,
            state=state,
            plan=plan,
            row=row,
            slots=slots,
            place=place,
            window_ends=window_ends,
        )

        # The row is final: from here on it is only looked at.
        note_last_change(self.layout, plan.due, row, anchor=state.row, slots=slots)
        if self.average_steps is not None and plan.ends_cycle:
            move_average(
                slots[AVERAGE],
                row,
                state=state,
                plan=plan,
                average_steps=self.average_steps,
            )

        # d_l, and at a cycle's end new intervals: Algorithm 1, line 11
        moved: dict[int, float] = {}
        norm: dict[int, float] = {}
        if asks_for_movement(self.policy):
            moved, norm = movement(self.layout, plan.due, before=state.row, after=row)
        sent = participants.sent
        if sent is None:
            sent = traffic.up.layers
        evidence = Evidence(
            spread=spread,
            moved=moved,
            norm=norm,
            sent=sent,
            clients=reduce.clients,
        )
        policy_state = observe_checked(
            self.policy,
            state.policy_state,
            plan,
            evidence,
            self.layout.layers,
        )
        return ServerState(
            policy_state=policy_state,
            # κ_l and C of Eq. 5, and every byte
            ledger=state.ledger.charge(traffic, aggregated=plan.due),
            row=row,
            slots=slots,
            broadcast=self._with_rule_rows(broadcast),
        )

    def discard(self, state: ServerState, traffic: Traffic) -> ServerState:
        """The state after an attempt that came to nothing: what was sent stays counted, and new clients will come.

        Those begin with the server's row, every layer as it was last averaged. So all copies of all layers are equal
        there, and Eq. 2 counts its steps from there.

        Arguments:
            state: The state before the attempt.
            traffic: What travelled in it.
        """
        synchronised_at = (state.step,) * len(self.layout.layers)
        policy_state = replace(state.policy_state, synchronised_at=synchronised_at)
        return replace(
            state,
            policy_state=policy_state,
            ledger=state.ledger.charge(traffic),
        )

    def _apply_rules(
        self,
        state: ServerState,
        plan: RoundPlan,
        row: Tensor,
        participants: Participants,
    ) -> dict[str, Tensor]:
        """Let the local rule's server part and then the server rule act on each due tensor of `row`; the new slots."""
        # Copies, since a round that comes to nothing must leave the state before as it was.
        slots: dict[str, Tensor] = {}
        for name, values in state.slots.items():
            slots[name] = values.clone()
        step = state.step + plan.steps
        read_only = ReadOnly({"anchor": state.row})
        for layer in plan.due:
            since = range(state.policy_state.synchronised_at[layer], step)
            # Layers are averaged after unequal numbers of steps, so a rule's decay goes by base intervals.
            periods = len(since) / self.policy.base_interval
            taken = participants.taken(since, self.policy.base_interval)
            for part in self.layout.layers[layer].slices:
                own = views(slots, part)
                anchor = state.row[part]
                mean = row[part]
                merged = mean
                if self.local is not None:
                    merged = self.local.merge(
                        anchor,
                        mean,
                        own,
                        steps=since,
                        taken=taken,
                        share=participants.share,
                    )
                    read_only.check(self.local)
                    check_result(self.local, "merge", merged, like=mean)
                new = self.rule.apply(
                    anchor,
                    merged,
                    own,
                    count=state.ledger.aggregations[layer],
                    periods=periods,
                )
                read_only.check(self.rule)
                check_result(self.rule, "apply", new, like=mean)
                # The plain average is in its place already.
                if new is not mean:
                    row[part] = new
        return slots

    def _with_rule_rows(self, message: Message) -> Message:
        """The same message with what the local rule sends beside the model, one row of its layers for each name."""
        if self.local is None:
            return message
        count = len(self.local.sends)
        if count == 0:
            return message

        layers: dict[int, int] = {}
        for number, nbytes in message.layers.items():
            layer = self.layout.layers[number]
            beside_model = count * BYTES_PER_NUMBER * layer.size
            layers[number] = nbytes + beside_model
        return Message(layers, message.statistics)
