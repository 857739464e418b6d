"""One round: the clients train, what they send is added up, and the server closes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedlama.base import DivergenceError
from fedlama.compress import Decoded, Place
from fedlama.core import Message, RoundPlan, Traffic
from fedlama.data import Shards
from fedlama.local import MODEL, steps_taken
from fedlama.processes.world import World
from fedlama.rows import magnitudes, squared_distances
from fedlama.server import Server
from fedlama.training.coding import Uplink
from fedlama.training.cohorts import Cohort, Cohorts
from fedlama.training.current import Round
from fedlama.training.exact import ExactReduce
from fedlama.training.phases import phase
from fedlama.training.trainers import Trainer
from fedlama.training.values import Played, Position, Reports, Verdict


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
        if self.job.uplink is not None:
            self.uplink = Uplink(
                self.job.uplink,
                window_steps=self.job.window_steps,
                base_interval=self.job.policy.base_interval,
            )

    def play(self, position: Position, plan: RoundPlan) -> Played:
        """Train, check and close one round."""
        current = self.begin(position, plan)
        losses = self.train(current)
        reports = self.report(current, losses)
        accepted = self.accept(current, reports)
        return self.close(current, accepted)

    def begin(self, position: Position, plan: RoundPlan) -> Round:
        """The round with its clients, who are sent the model."""
        entering = self.cohorts.enters(position)
        return Round(self.cohorts.at(position), position, plan, entering)

    def train(self, current: Round) -> Tensor:
        """Take the round's steps with this process's clients; their mean losses, zero for the absent."""
        cohort = current.cohort
        losses = torch.zeros(
            len(cohort.mine), dtype=torch.float64, device=cohort.rows.device
        )
        clients = [cohort.clients[index] for index in cohort.mine]
        server_rows = self._server_rows(current.position)
        trained: tuple[slice, ...] | None = None
        if current.plan.trained is not None:
            trained = tuple(self.layout.slices_of(current.plan.trained))
        local_steps = [
            self._taken(cohort.paces[index], current.steps) for index in cohort.mine
        ]
        with phase("train"):
            for part in cohort.trained_parts(self.trainer.block):
                losses[part] = self.trainer.train(
                    clients[part],
                    cohort.rows[part],
                    {name: values[part] for name, values in cohort.slots.items()},
                    cohort.counters[part],
                    server_rows,
                    current.steps,
                    local_steps[part],
                    trained,
                )
            self._sync(current, server_rows)
        if self.uplink is not None:
            with phase("encode"):
                current.figures = self.uplink.code(
                    cohort, current.position, current.plan
                )
        return losses

    def report(
        self, current: Round, losses: Tensor, with_norms: bool = False
    ) -> Reports:
        """What every process has to know of every client; `with_norms` measures the updates of the due layers."""
        cohort = current.cohort
        plan = current.plan
        slices = self.averaged_slices(plan)
        columns = [losses[:, None], magnitudes(cohort.rows, slices)]
        if self.uplink is not None:
            columns.append(current.figures)
        if with_norms:
            distances = squared_distances(
                current.position.row, cohort.rows, self.layout.slices_of(plan.due)
            )
            columns.append(distances.sum(dim=1, keepdim=True))
        # One sum over all processes instead of several: on small models a collective costs more than the arithmetic.
        here = torch.cat(columns, dim=1)
        table = here.new_zeros(len(cohort.clients), here.shape[1])
        table[cohort.mine] = here
        self.world.sum_(table)
        norms: list[float] = []
        if with_norms:
            norms = table[:, -1].sqrt().tolist()
        uploads = [current.position.server.ledger.plain_message(plan.due)] * len(
            cohort.clients
        )
        decoded: list[Decoded] = []
        if self.uplink is not None:
            start = 1 + len(slices)
            stop = start + self.uplink.width(plan)
            decoded = self.uplink.messages(table[:, start:stop], plan.due)
            uploads = [message.charged for message in decoded]
        return Reports(
            losses=table[:, 0].tolist(),
            largest=table[:, 1 : 1 + len(slices)],
            norms=norms,
            uploads=uploads,
            decoded=decoded,
        )

    def accept(self, current: Round, reports: Reports) -> Verdict:
        """Everyone counts, or the training diverged."""
        finite = reports.largest.isfinite().all(dim=1).tolist()
        for index, client in enumerate(current.cohort.clients):
            check_finite(
                client, reports.losses[index], finite[index], current, self.job.shards
            )
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

    def download(self, current: Round, clients: int) -> Message:
        """What so many clients were sent before this round."""
        return self.server.download(
            current.position.server, entering=current.entering
        ).times(clients)

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
        window_ends = current.steps.stop % self.job.window_steps == 0
        with phase("aggregate"):
            down = self.download(current, downloads)
            after = self.server.close(
                position.server,
                plan,
                ExactReduce(self.layout, current, verdict, self.world, self.uplink),
                Traffic(up=verdict.upload, down=down),
                sent=verdict.counted.layers,
                share=cohort.present / len(self.job.shards),
                paces=list(zip(verdict.weights, cohort.paces, strict=True)),
                place=self._server_place(current),
                window_ends=window_ends,
            )
            if not window_ends:  # those who come next are given the whole row
                for part in [
                    *self.layout.slices_of(plan.renewed),
                    *self.layout.statistics,
                ]:
                    cohort.rows[:, part] = after.row[part]
            counters = self._join_counters(cohort, position.counters)
        attempt = position.attempt
        if window_ends:
            self.cohorts.leave(cohort)
            attempt = 0
        return Played(position, Position(after, counters, attempt), plan, verdict)

    def averaged_slices(self, plan: RoundPlan) -> list[slice]:
        """What is averaged at the end of a round: the due layers and the statistics."""
        return [*self.layout.slices_of(plan.due), *self.layout.statistics]

    def _server_place(self, current: Round) -> Place:
        """Where the server's own message belongs."""
        if self.uplink is not None:
            return self.uplink.place(current.position, current.plan, client=0)
        return Place(current.position.state.round + 1, client=0)

    def _server_rows(self, position: Position) -> Mapping[str, Tensor]:
        """What the local rule may look at: the anchor, and what the server sends for the rule."""
        rows = {MODEL: position.row}
        for name in self.job.local.sends:
            rows[name] = position.server.slots[name]
        return rows

    def _sync(self, current: Round, server_rows: Mapping[str, Tensor]) -> None:
        """Before a due layer is uploaded, the local rule may update its slots, or what is sent."""
        cohort = current.cohort
        local = self.job.local
        synchronised_at = current.position.state.synchronised_at
        present = list(cohort.trained_parts(block=1))
        for layer in current.plan.due:
            since = range(synchronised_at[layer], current.steps.stop)
            taken = self._steps_taken(cohort, since)
            for part in self.layout.layers[layer].slices:
                server = {name: row[part] for name, row in server_rows.items()}
                for places in present:
                    rows = cohort.rows[places, part]
                    own = {
                        name: values[places, part]
                        for name, values in cohort.slots.items()
                    }
                    local.sync(
                        rows,
                        own,
                        server,
                        steps=since,
                        taken=taken[places, None],
                    )

    def _steps_taken(self, cohort: Cohort, steps: range) -> Tensor:
        """How many steps each client of this process took in these global ones."""
        counts: list[int] = []
        for index in cohort.mine:
            own_steps = self._taken(cohort.paces[index], steps)
            counts.append(len(own_steps))
        return torch.tensor(counts, device=cohort.rows.device)

    def _taken(self, pace: int | None, steps: range) -> range:
        """The local steps that a client takes in these global ones."""
        return steps_taken(pace, self.job.policy.base_interval, steps)

    def _join_counters(self, cohort: Cohort, counters: Tensor) -> Tensor:
        """Whole-number buffers are equal on every client or count upwards, so the server keeps the largest."""
        if not len(counters):
            return counters
        here = cohort.present_here()
        joined = torch.full_like(counters, torch.iinfo(counters.dtype).min)
        if here:
            joined = cohort.counters[here].amax(dim=0)
        self.world.max_(joined)
        cohort.counters.copy_(joined)
        return joined


def total_of(messages: Sequence[Message]) -> Message:
    """The bytes of all these messages."""
    # Without a codec all clients send the same message: one multiplication instead of a sum over clients and layers.
    counts: dict[int, int] = {}
    different: dict[int, Message] = {}
    for message in messages:
        key = id(message)
        counts[key] = counts.get(key, 0) + 1
        different[key] = message
    total = Message()
    for key, message in different.items():
        of_all = message.times(counts[key])
        total = total.plus(of_all)
    return total


def check_finite(
    client: int, loss: float, weights_are_finite: bool, current: Round, shards: Shards
) -> None:
    """Raise DivergenceError for a client whose loss or weights are not finite."""
    if not math.isfinite(loss):
        raise diverged(f"the loss of {shards.name_of(client)} was", current)
    if not weights_are_finite:
        raise diverged(f"the weights of {shards.name_of(client)} were", current)


def diverged(what: str, current: Round) -> DivergenceError:
    """What is said of a training that went wrong in this round."""
    return DivergenceError(
        f"{what} not finite in round {current.position.state.round + 1} (from step {current.position.step + 1}): "
        f"the training diverged, so lower local.learning_rate"
    )
