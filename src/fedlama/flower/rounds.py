"""One round over Flower's grid: its clients train, their replies are read, the server closes it, or it is repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from flwr.app import Message, RecordDict

from fedlama.base import RunError
from fedlama.core import Message as Bytes
from fedlama.core import RoundPlan, Traffic, total_of
from fedlama.flower.cohorts import FlowerCohort, FlowerCohorts
from fedlama.flower.nodes import Nodes
from fedlama.flower.options import Options
from fedlama.flower.recording import Recording
from fedlama.flower.reduce import UpdatesReduce
from fedlama.flower.saving import checkpoint_of
from fedlama.flower.sending import Sender
from fedlama.flower.updates import ReplyReader, Update
from fedlama.local import steps_per_interval
from fedlama.server import Participant, Participants, Server
from fedlama.server.exclusions import Exclusion, entries_of
from fedlama.server.tolerance import MAX_NAMED
from fedlama.training.coding import Uplink
from fedlama.training.position import Position

# Attempts in one window, by cohorts that were too small: fewer than in the simulator, because each may cost a deadline
MAX_ATTEMPTS = 10


@dataclass(frozen=True, kw_only=True)
class PlayedRound:
    """A round that counts.

    Arguments:
        started: Where its last attempt began; what earlier ones left behind is in there.
        after: Where the run stands now.
        losses: The training loss of every client that counts, by client.
        excluded: Who did not count, and why.
    """

    started: Position
    after: Position
    losses: dict[int, float]
    excluded: list[Exclusion]


class FlowerRounds:
    """Plays the rounds of one run.

    Arguments:
        options: What the strategy was given.
        nodes: Who is there.
        cohorts: The clients of each window.
        server: Closes a round.
        uplink: The code of the replies, if any.
        sender: Makes the messages to clients.
        recording: Where the run is saved before it stops.
    """

    def __init__(
        self,
        options: Options,
        *,
        nodes: Nodes,
        cohorts: FlowerCohorts,
        server: Server,
        uplink: Uplink | None,
        sender: Sender,
        recording: Recording,
    ) -> None:
        self.options = options
        self.nodes = nodes
        self.cohorts = cohorts
        self.server = server
        self.layout = server.layout
        self.uplink = uplink
        self.sender = sender
        self.recording = recording
        self.keepers: set[int] = set()  # clients that may keep something of the run

    def play(self, position: Position, plan: RoundPlan) -> PlayedRound:
        """Play a round until enough clients are left, or stop the run.

        Arguments:
            position: Where the run stands before it.
            plan: The round.
        """
        tolerance = self.options.tolerance
        while True:
            cohort, reasons = self.cohorts.at(position, plan)
            tag = self._tag(position)
            updates, down = self._train(position, plan, cohort, tag)
            self._note_keepers(position, plan, updates)
            uploads: list[Bytes] = []
            for client, update in updates.items():
                uploads.append(update.upload)
                if update.reason is not None:
                    reasons[client] = update.reason
            # An update that does not count has travelled all the same.
            traffic = Traffic(up=total_of(uploads), down=down)

            cohort.absent.update(reasons)
            excluded = entries_of(reasons, position.attempt)
            counted = {client: updates[client] for client in cohort.present}
            if tolerance.suffices(len(counted)):
                cohort.tags = dict.fromkeys(counted, tag)
                after = self._close(position, plan, counted, traffic)
                losses = {client: update.loss for client, update in counted.items()}
                return PlayedRound(
                    started=position,
                    after=after,
                    losses=losses,
                    excluded=excluded,
                )

            position = self._discard(position, cohort, excluded, traffic)
            if tolerance.gives_up(position.attempt, maximum=MAX_ATTEMPTS):
                self.recording.save(checkpoint_of(position), position.policy_state)
                raise self._too_few(position, reasons)
            self.nodes.wait_for(tolerance.min_clients, self.options.deadline)

    def _tag(self, position: Position) -> str:
        """Marks what clients have after this attempt at the next round."""
        run = self.sender.identity.run
        state = position.policy_state
        cycle = state.cycle + 1
        number = state.round + 1
        attempt = position.attempt
        return f"{run}/{cycle}/{number}/{attempt}"

    def _train(
        self, position: Position, plan: RoundPlan, cohort: FlowerCohort, tag: str
    ) -> tuple[dict[int, Update], Bytes]:
        """Send every client its task; what each replied, and what all were sent."""
        reader = ReplyReader(
            position,
            plan,
            self.layout,
            self.uplink,
            tag=tag,
            tolerance=self.options.tolerance,
        )
        sender = self.sender.round(position, plan, tag)

        def send_the_whole_model(client: int, reply: Message) -> RecordDict | None:
            if client not in cohort.tags:
                return None
            if not reader.has_lost_its_state(reply):
                return None
            # Once only: without a tag the answer to this message is a reply like any other.
            del cohort.tags[client]
            return sender.content(client, expects="")

        contents: dict[int, RecordDict] = {}
        for client in cohort.present:
            expects = cohort.tags.get(client, "")
            contents[client] = sender.content(client, expects)
        replies = self.nodes.train(contents, send_the_whole_model)

        updates: dict[int, Update] = {}
        for client in cohort.present:
            reply = replies.get(client)
            updates[client] = reader.read(client, reply)
        return updates, total_of(sender.sent)

    def _note_keepers(
        self, position: Position, plan: RoundPlan, updates: Mapping[int, Update]
    ) -> None:
        """Who trained may keep something; whoever replied as it should in the last round has freed everything."""
        is_last = position.step + plan.steps >= self.sender.identity.iterations
        for client, update in updates.items():
            if is_last and update.reason is None:
                self.keepers.discard(client)
            else:
                self.keepers.add(client)

    def _close(
        self,
        position: Position,
        plan: RoundPlan,
        counted: Mapping[int, Update],
        traffic: Traffic,
    ) -> Position:
        """Where the run stands after a round that counts."""
        clients = list(counted)
        updates = list(counted.values())
        weights = self.weights(clients)
        averaged: list[Participant] = []
        for client, weight in zip(clients, weights, strict=True):
            pace = self._pace(client, position)
            averaged.append(Participant(weight, pace))

        place = self.sender.place(position, plan, client=0)
        reduce = UpdatesReduce(
            self.layout,
            updates,
            weights,
            uplink=self.uplink,
            position=position,
            plan=plan,
        )
        counted_bytes = total_of([update.upload for update in updates])
        participants = Participants(
            clients=tuple(averaged),
            share=len(counted) / self.nodes.population,
            sent=counted_bytes.layers,
        )
        window_ends = self.cohorts.ends_window(position.step + plan.steps)
        after = self.server.close(
            position.server_state,
            plan,
            reduce,
            traffic,
            participants=participants,
            place=place,
            window_ends=window_ends,
        )
        self.sender.keep_for_those_who_stay(after, plan, place)

        counters = position.counters
        if len(counters):
            # Whole-number buffers are equal on every client or count upwards, so the server keeps the largest.
            lists = [update.counters for update in updates]
            of_clients = torch.tensor(lists, dtype=torch.int64)
            counters = of_clients.amax(dim=0)

        return position.closed(after, counters, window_ends=window_ends)

    def weights(self, clients: Sequence[int]) -> list[float]:
        """What these clients weigh; it adds up to one.

        Arguments:
            clients: Their numbers.
        """
        counts = [1] * len(clients)
        if self.options.weights == "samples":
            samples = self.nodes.samples
            counts = [samples[client] for client in clients]

        total = sum(counts)
        return [count / total for count in counts]

    def _pace(self, client: int, position: Position) -> int | None:
        """How many steps a client takes per base interval; it follows from its samples, so nobody has to send it."""
        local = self.options.local
        if local is None:
            return None
        return steps_per_interval(
            local.steps,
            samples=self.nodes.samples[client],
            batch_size=local.batch_size,
            seed=self.options.seed,
            window=self.cohorts.window_of(position.step),
            client=client,
        )

    def _discard(
        self,
        position: Position,
        cohort: FlowerCohort,
        excluded: Sequence[Exclusion],
        traffic: Traffic,
    ) -> Position:
        """Where the run stands after an attempt that came to nothing."""
        after = self.server.discard(position.server_state, traffic)
        return position.given_up(after, excluded, cohort.present)

    def _too_few(self, position: Position, reasons: Mapping[int, str]) -> RunError:
        clients = sorted(reasons)
        named: list[str] = []
        for client in clients[:MAX_NAMED]:
            named.append(f"client {client}: {reasons[client]}")
        why = self.options.tolerance.too_few(
            named,
            option="min_clients",
            round=position.policy_state.round + 1,
        )
        iterations = self.sender.identity.iterations
        return RunError(
            f"stopped at step {position.step} of {iterations}: "
            f"{why}{self.recording.how_to_go_on}"
        )
