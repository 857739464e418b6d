"""The values that the loop works on: a job, where it stands, and what is known of a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlama.compress import Channel, Decoded
from fedlama.core import Layout, Ledger, Message, Policy, PolicyState, RoundPlan
from fedlama.data import Dataset, Shards
from fedlama.local import LocalRule
from fedlama.rows import Slot, distinct
from fedlama.server import Server, ServerRule, ServerState
from fedlama.server.exclusions import Attempts, Exclusion, entries_of_all
from fedlama.training.evaluation import ClientSamples, Loss, Metric
from fedlama.training.faults import Faults
from fedlama.training.participation import Participation

# Ema: the exponential moving average of the server's model
Evaluated = Literal["model", "ema"]
DEFAULT_AVERAGE_STEPS = 120


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a run is, but for its position.

    Arguments:
        policy: Which layers are averaged when.
        local: What a client does with a gradient.
        server: What the server makes of an average.
        participation: How many clients train at a time, and for how long.
        weights: What a client weighs in an average: "uniform", or "samples".
        iterations: How many global steps there are.
        evaluate_every: Cycle ends that pass a multiple of so many steps are evaluated.
        seed: Decides every random draw.
        precision: Of local steps.
        data: Samples and targets.
        shards: Which samples each client has.
        loss: A function of outputs and targets.
        metric: Another such function, if there is one.
        faults: What may happen to clients, if anything.
        uplink: The code of what clients send, if any.
        downlink: The code of what clients that stay are sent, if any.
        evaluate: What is evaluated and returned: the global model or a moving average of it.
        evaluate_average: Whether a moving average is also evaluated, beside the global model.
        average_steps: Over how many steps that average reaches back.
        client_samples: What each client is evaluated on, if it is.
    """

    policy: Policy
    local: LocalRule
    server: ServerRule
    participation: Participation
    weights: str
    iterations: int
    evaluate_every: int
    seed: int
    precision: str
    data: Dataset
    shards: Shards
    loss: Loss
    metric: Metric | None
    faults: Faults | None = None
    uplink: Channel | None = None
    downlink: Channel | None = None
    evaluate: Evaluated = "model"
    evaluate_average: bool = False
    average_steps: int = DEFAULT_AVERAGE_STEPS
    client_samples: ClientSamples | None = None

    @property
    def client_slots(self) -> tuple[Slot, ...]:
        """What is kept for each client, by whomever."""
        own = self.local.slots
        if self.uplink is None:
            return own
        # Refused where two of one name would share a row without a word
        return distinct((*own, *self.uplink.slots))

    @property
    def outliving_slots(self) -> tuple[Slot, ...]:
        """Those of them that are kept until a client returns."""
        slots: list[Slot] = []
        for slot in self.client_slots:
            outlives_window = slot.lifetime == "run"
            if outlives_window:
                slots.append(slot)
        return tuple(slots)

    def evaluated(self, server: ServerState) -> Tensor:
        """The model that is evaluated and returned."""
        if self.evaluate == "model":
            return server.row
        assert server.average is not None, "the server was asked to keep one"
        return server.average

    def make_server(self, layout: Layout) -> Server:
        """The server of this run."""
        average_steps = None
        if self.evaluate == "ema" or self.evaluate_average:
            average_steps = self.average_steps
        return Server(
            layout,
            self.policy,
            rule=self.server,
            local=self.local,
            uplink=self.uplink,
            downlink=self.downlink,
            average_steps=average_steps,
        )

    def uplink_share(self, ledger: Ledger, step: int) -> float:
        """Uplink bytes up to a step, divided by those of uncompressed FedAvg at the base interval."""
        population = len(self.shards)
        clients = self.participation.count(population)
        base_interval = self.policy.base_interval
        return ledger.uplink_share(step, base_interval, clients=clients)

    @property
    def window_steps(self) -> int:
        """How many steps a cohort stays."""
        return self.participation.window_steps(self.policy)


@dataclass(frozen=True)
class Position:
    """Where a run stands after a round.

    Arguments:
        server: The server's state.
        counters: The whole-number buffers of the global model.
        attempt: How many cohorts of this window were given up.
        discarded: What attempts at this round leave behind; None where it is tried for the first time.
    """

    server: ServerState
    counters: Tensor
    attempt: int = 0
    discarded: Attempts | None = None

    @property
    def step(self) -> int:
        """Global steps taken so far."""
        return self.server.step

    @property
    def state(self) -> PolicyState:
        """Where the policy stands."""
        return self.server.policy

    @property
    def row(self) -> Tensor:
        """The global model."""
        return self.server.row

    def brings_clients(self, window_steps: int) -> bool:
        """Whether new clients come before the next round: at a window's start, or where the last ones were given up.

        Arguments:
            window_steps: How many steps a cohort stays.
        """
        at_window_start = self.step % window_steps == 0
        were_given_up = self.discarded is not None
        return at_window_start or were_given_up

    def closed(
        self, server: ServerState, counters: Tensor, *, window_ends: bool
    ) -> Position:
        """Where the run stands after the next round, if that counts.

        Arguments:
            server: The server's state then.
            counters: The whole-number buffers then.
            window_ends: Whether the cohort leaves; attempts are counted per window.
        """
        attempt = self.attempt
        if window_ends:
            attempt = 0
        return Position(server, counters, attempt)

    def given_up(
        self,
        server: ServerState,
        excluded: Sequence[Exclusion],
        present: Iterable[int],
    ) -> Position:
        """Where the run stands after an attempt at the next round that came to nothing.

        Arguments:
            server: The server's state then, as `Server.discard` gives it.
            excluded: Who was excluded in this attempt.
            present: The other clients of the cohort.
        """
        entries = entries_of_all(excluded, present, self.attempt)
        discarded = self._attempts_with(entries, server)
        return replace(
            self,
            server=server,
            attempt=self.attempt + 1,
            discarded=discarded,
        )

    def attempts_until(
        self, after: Position, excluded: Sequence[Exclusion]
    ) -> Attempts:
        """All attempts at a round that counts: those that came to nothing belong to it, also those before a resume.

        Arguments:
            after: Where the run stands after the last attempt, which began here.
            excluded: Who was excluded in that.
        """
        return self._attempts_with(excluded, after.server)

    def _attempts_with(
        self, entries: Sequence[Exclusion], after: ServerState
    ) -> Attempts:
        earlier = self.discarded or Attempts()
        return earlier.extended(
            entries,
            before=self.server.ledger,
            after=after.ledger,
        )

    def on_cpu(self) -> Position:
        """The same position as tensors in main memory."""
        slots: dict[str, Tensor] = {}
        for name, values in self.server.slots.items():
            slots[name] = _on_cpu(values)
        server = replace(
            self.server,
            row=_on_cpu(self.row),
            slots=slots,
        )
        return replace(
            self,
            server=server,
            counters=_on_cpu(self.counters),
        )

    def as_arrays(self) -> Position:
        """With numpy arrays in place of tensors: those travel between processes as plain bytes."""
        slots = {name: values.numpy() for name, values in self.server.slots.items()}
        server = replace(
            self.server,
            row=self.row.numpy(),
            slots=slots,
        )
        return replace(
            self,
            server=server,
            counters=self.counters.numpy(),
        )


def _on_cpu(values: Tensor | NDArray[Any]) -> Tensor:
    """Nothing is copied of what is in main memory already."""
    return torch.as_tensor(values).cpu()


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What is known of every client of a cohort after a round of training, in the cohort's order."""

    losses: list[float]  # mean over the round's steps
    # The largest magnitude of every slice that is averaged, [clients, slices]
    largest: Tensor
    # Of the updates of the due layers; empty where there is no limit
    norms: list[float]
    uploads: list[Message]  # what each client sends
    # What else is known of coded messages; empty where nothing is coded
    decoded: list[Decoded]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whose update counts: clients that are excluded weigh nothing, and all about them is zero."""

    weights: list[float]
    losses: list[float]
    largest: list[float]  # magnitudes of the slices that are averaged
    upload: Message  # what all clients sent, also those that are excluded
    counted: Message  # what those sent whose update counts
    decoded: list[Decoded]
    excluded: list[Exclusion]


@dataclass(frozen=True)
class Played:
    """A round that was played.

    Arguments:
        started: Where its last attempt started.
        position: Where the run stands after it.
        plan: What was planned.
        verdict: Whose update counted. None where too few clients were left, and the run stops.
    """

    started: Position
    position: Position
    plan: RoundPlan
    verdict: Verdict | None
