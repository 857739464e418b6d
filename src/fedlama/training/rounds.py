"""One round: the clients train, what they send is added up, and the server closes it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedlama.compress import MessagePlace
from fedlama.core import Message, RoundPlan, Traffic, total_of
from fedlama.local import MODEL
from fedlama.processes.world import World
from fedlama.rows import ReadOnly, views
from fedlama.server import Participant, Participants, Server
from fedlama.training.coding import Uplink
from fedlama.training.cohorts import Cohort, Cohorts
from fedlama.training.current import Round
from fedlama.training.divergence import check_finite
from fedlama.training.exact import ExactReduce
from fedlama.training.participation import is_between_windows
from fedlama.training.phases import phase
from fedlama.training.played import Played, Reports, Verdict
from fedlama.training.position import Position
from fedlama.training.reporting import reports_of_all
from fedlama.training.syncing import sync_due_layers
from fedlama.training.trainers import Trainer


class Rounds:
    """Rounds in which every client takes part; one whose numbers are not finite ends the run.

    Arguments:
        server: Plans and closes rounds.
        trainer: Takes the local steps.
        cohorts: Draws the clients.
        world: The processes that share the run.
    """

    def __init__(
        self, server: Server, trainer: Trainer, cohorts: Cohorts, world: World
    ) -> None:
        self.server = server
        self.layout = server.layout
        self.trainer = trainer
        self.cohorts = cohorts
        self.world = world
        self.job = cohorts.job
        self.uplink: Uplink | None = None
        if self.job.uplink_channel is not None:
            self.uplink = Uplink(
                self.job.uplink_channel,
                window_steps=self.job.window_steps,
                base_interval=self.job.policy.base_interval,
            )

    def play(self, position: Position, plan: RoundPlan) -> Played:
        """Train, check and close one round."""
        current = self.begin(position, plan)
        losses = self.train(current)
        self.encode(current)
        reports = self.report(current, losses)
        accepted = self.accept(current, reports)
        return self.close(current, accepted)

    def begin(self, position: Position, plan: RoundPlan) -> Round:
        """The round with its clients, who are sent the model."""
        entering = self.cohorts.enters(position)
        cohort = self.cohorts.at(position)
        return Round(cohort, position, plan, entering)

    def train(self, current: Round) -> Tensor:
        """Take the round's steps with this process's clients, and let the local rule sync what is due; mean losses."""
        cohort = current.cohort
        losses = torch.zeros(
            len(cohort.mine),
            dtype=torch.float64,
            device=cohort.rows.device,
        )
        clients = [cohort.clients[index] for index in cohort.mine]
        base_interval = self.job.policy.base_interval
        local_steps = cohort.local_steps(current.steps, base_interval)
        server_rows = self._server_rows(current.position)
        read_only = ReadOnly.sent(server_rows)
        # None trains all tensors
        trained: tuple[slice, ...] | None = None
        if current.plan.trained is not None:
            trained = tuple(self.layout.slices_of(current.plan.trained))

        with phase("train"):
            for part in cohort.trained_parts(self.trainer.block):
                slots = views(cohort.slots, part)
                losses[part] = self.trainer.train(
                    clients[part],
                    cohort.rows[part],
                    slots=slots,
                    counters=cohort.counters[part],
                    server_rows=server_rows,
                    steps=current.steps,
                    local_steps=local_steps[part],
                    trained=trained,
                )
            # Before anything is coded or added up: a rule may change what is sent.
            sync_due_layers(current, self.job, self.layout, server_rows)
        # Once for all steps; whoever wrote to these rows wrote to every client's anchor.
        read_only.check(self.job.local)
        return losses

    def encode(self, current: Round) -> None:
        """Replace what is due in every row by what the server will decode of it, where there is an uplink code."""
        if self.uplink is None:
            return
        with phase("encode"):
            current.figures = self.uplink.code(
                current.cohort,
                current.position,
                current.plan,
            )

    def report(
        self, current: Round, losses: Tensor, with_norms: bool = False
    ) -> Reports:
        """What every process has to know of every client; `with_norms` measures the updates of the due layers."""
        return reports_of_all(
            current,
            losses,
            layout=self.layout,
            world=self.world,
            uplink=self.uplink,
            with_norms=with_norms,
        )

    def accept(self, current: Round, reports: Reports) -> Verdict:
        """Everyone counts, or the training diverged."""
        # Found here and by name, before one client's NaN is everybody's
        finite = reports.finite()
        for index in range(len(current.cohort.clients)):
            self.check_finite(current, index, reports.losses[index], finite[index])
        upload = total_of(reports.uploads)
        return Verdict(
            weights=current.cohort.weights(),
            losses=reports.losses,
            largest=reports.largest.amax(dim=0).tolist(),
            upload=upload,
            counted=upload,
            decoded=reports.decoded,
            excluded=[],
        )

    def check_finite(
        self, current: Round, index: int, loss: float, weights_are_finite: bool
    ) -> None:
        """Raise DivergenceError unless the loss and the weights of one client of the cohort are finite."""
        check_finite(
            client=current.cohort.clients[index],
            loss=loss,
            weights_are_finite=weights_are_finite,
            current=current,
            shards=self.job.shards,
        )

    def download(self, current: Round, clients: int) -> Message:
        """What so many clients were sent before this round.

        Arguments:
            current: The round.
            clients: How many there are.
        """
        to_one = self.server.download(
            current.position.server_state,
            entering=current.entering,
        )
        return to_one.times(clients)

    def close(
        self, current: Round, verdict: Verdict, downloads: int | None = None
    ) -> Played:
        """Average what is due, let the server go on from there, and overwrite the local copies.

        Arguments:
            current: The round.
            verdict: Whose update counts.
            downloads: How many clients were sent the model before the round (default: all of the cohort).
        """
        cohort = current.cohort
        position = current.position
        plan = current.plan
        if downloads is None:
            downloads = len(cohort.clients)
        window_ends = is_between_windows(current.steps.stop, self.job.window_steps)
        with phase("aggregate"):
            reduce = ExactReduce(
                layout=self.layout,
                current=current,
                verdict=verdict,
                world=self.world,
                uplink=self.uplink,
            )
            down = self.download(current, downloads)
            after = self.server.close(
                position.server_state,
                plan,
                reduce,
                Traffic(up=verdict.upload, down=down),
                participants=self._participants(cohort, verdict),
                place=self._server_place(current),
                window_ends=window_ends,
            )
            # At a window's end others come next, and they are given the whole row
            if not window_ends:
                for part in self.layout.slices_with_statistics(plan.renewed):
                    cohort.rows[:, part] = after.row[part]
            counters = self._join_counters(cohort, position.counters)
        if window_ends:
            self.cohorts.leave(cohort)
        reached = position.closed(after, counters, window_ends=window_ends)
        return Played(position, reached, plan, verdict)

    def _participants(self, cohort: Cohort, verdict: Verdict) -> Participants:
        """Who is averaged: clients that are absent weigh nothing."""
        clients: list[Participant] = []
        for weight, pace in zip(verdict.weights, cohort.paces, strict=True):
            clients.append(Participant(weight, pace))
        return Participants(
            clients=tuple(clients),
            share=cohort.present / len(self.job.shards),
            sent=verdict.counted.layers,
        )

    def _server_place(self, current: Round) -> MessagePlace:
        """Where the server's own message belongs."""
        before = current.position
        if self.uplink is None:
            return MessagePlace(before.policy_state.round + 1, client=0)
        return self.uplink.place(
            before,
            current.plan,
            client=0,
        )

    def _server_rows(self, position: Position) -> Mapping[str, Tensor]:
        """What the local rule may look at: the anchor, and what the server sends for the rule."""
        rows = {MODEL: position.row}
        kept = position.server_state.slots
        for name in self.job.local.sends:
            rows[name] = kept[name]
        return rows

    def _join_counters(self, cohort: Cohort, counters: Tensor) -> Tensor:
        """Whole-number buffers are equal on every client or count upwards, so the server keeps the largest."""
        if not len(counters):
            return counters
        lowest = torch.iinfo(counters.dtype).min
        joined = torch.full_like(counters, lowest)
        here = cohort.present_here()
        if here:
            joined = cohort.counters[here].amax(dim=0)
        self.world.max_(joined)
        cohort.counters.copy_(joined)
        return joined
