"""Job: all that a run is, but for its position."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedlama.compress import Channel
from fedlama.core import Layout, Policy
from fedlama.data import Dataset, Shards
from fedlama.local import LocalRule
from fedlama.rows import Slot, distinct
from fedlama.server import Server, ServerRule, ServerState
from fedlama.training.evaluation import ClientSamples, Loss, Metric
from fedlama.training.faults import Faults
from fedlama.training.options import RunOptions
from fedlama.training.participation import Participation


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a run is, but for its position.

    Arguments:
        policy: Which layers are averaged when.
        local: What a client does with a gradient.
        server_rule: What the server makes of an average.
        participation: How many clients train at a time, and for how long.
        options: How many steps there are, how they are computed, what is evaluated when.
        data: Samples and targets.
        shards: Which samples each client has.
        loss: A function of outputs and targets.
        metric: Another such function, if there is one.
        faults: What may happen to clients, if anything.
        uplink_channel: The code of what clients send, if any.
        downlink_channel: The code of what clients that stay are sent, if any.
        client_samples: What each client is evaluated on, if it is.
    """

    policy: Policy
    local: LocalRule
    server_rule: ServerRule
    participation: Participation
    options: RunOptions
    data: Dataset
    shards: Shards
    loss: Loss
    metric: Metric | None
    faults: Faults | None = None
    uplink_channel: Channel | None = None
    downlink_channel: Channel | None = None
    client_samples: ClientSamples | None = None

    @property
    def client_slots(self) -> tuple[Slot, ...]:
        """What is kept for each client, by whomever."""
        own = self.local.slots
        if self.uplink_channel is None:
            return own
        # Refused where two of one name would share a row without a word
        return distinct((*own, *self.uplink_channel.slots))

    @property
    def outliving_slots(self) -> tuple[Slot, ...]:
        """Those of them that are kept until a client returns."""
        slots: list[Slot] = []
        for slot in self.client_slots:
            outlives_window = slot.lifetime == "run"
            if outlives_window:
                slots.append(slot)
        return tuple(slots)

    def evaluated(self, server_state: ServerState) -> Tensor:
        """The model that is evaluated and returned."""
        if self.options.evaluate == "model":
            return server_state.row
        assert server_state.average is not None, "the server was asked to keep one"
        return server_state.average

    def make_server(self, layout: Layout) -> Server:
        """The server of this run."""
        options = self.options
        average_steps = None
        if options.evaluate == "ema" or options.evaluate_average:
            average_steps = options.average_steps
        return Server(
            layout,
            self.policy,
            rule=self.server_rule,
            local=self.local,
            uplink=self.uplink_channel,
            downlink=self.downlink_channel,
            average_steps=average_steps,
        )

    @property
    def cohort_size(self) -> int:
        """How many clients train at a time."""
        population = len(self.shards)
        return self.participation.count(population)

    @property
    def window_steps(self) -> int:
        """How many steps a cohort stays."""
        return self.participation.window_steps(self.policy)
