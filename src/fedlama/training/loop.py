"""The one training loop, as in Algorithm 1. Everything that varies is a value handed to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlama.base import DivergenceError, random_key
from fedlama.core import RoundPlan
from fedlama.processes.world import World
from fedlama.rows import Binding, ClientStore
from fedlama.training.attempts import FaultyRounds
from fedlama.training.checkpoint import Checkpoint
from fedlama.training.checkpointing import Control
from fedlama.training.cohorts import Cohorts
from fedlama.training.evaluation import evaluate, evaluate_clients
from fedlama.training.job import Job
from fedlama.training.measures import ACCURACY, ClientScores
from fedlama.training.phases import phase
from fedlama.training.played import Played
from fedlama.training.position import Position
from fedlama.training.records import Record
from fedlama.training.rounds import Rounds
from fedlama.training.saving import Saving
from fedlama.training.seen_rows import Piece, SeenRows
from fedlama.training.trainers import Trainer

Emit = Callable[[Record | Checkpoint | Piece], None]


@dataclass(frozen=True)
class _Scores:
    """The global model where it was evaluated."""

    loss: float | None = None
    metric: float | None = None
    clients: ClientScores | None = None
    average: float | None = None  # of the moving average, beside it


class Federation:
    """A job at work in this process.

    Arguments:
        job: The run.
        binding: The module, whose layout is the model's.
        trainer: Takes the local steps.
        world: The processes that share the run.
        store: Where clients' slots of lifetime "run" are kept, if there are any.
    """

    def __init__(
        self,
        job: Job,
        binding: Binding,
        trainer: Trainer,
        world: World,
        store: ClientStore | None = None,
    ) -> None:
        self.job = job
        self.binding = binding
        self.world = world
        self.server = job.make_server(binding.layout)
        self.cohorts = Cohorts(
            job,
            binding,
            world,
            slots=job.client_slots,
            store=store,
            block=trainer.block,
        )
        self.rounds = Rounds(
            self.server,
            trainer,
            self.cohorts,
            world,
        )
        if job.faults:
            self.rounds = FaultyRounds(self.rounds, job.faults)

    def run(
        self,
        emit: Emit,
        control: Control | None = None,
        resume: Checkpoint | None = None,
        seen_rows: Iterable[SeenRows] = (),
    ) -> Position:
        """Train to the last step, handing out each round's record, and checkpoints when `control` asks for them.

        Ends early, at a cycle's end and after a checkpoint, if `control` says so; and after a checkpoint where too few
        clients are left to go on.

        Arguments:
            emit: Takes what is handed out.
            control: Says when to save and when to stop; None if nobody keeps checkpoints.
            resume: Where to go on; None to begin.
            seen_rows: The rows of clients seen that belong to it, at rank 0.
        """
        saving = Saving(self.cohorts, self.world, control, emit)
        if resume:
            position = saving.resumed(resume, seen_rows)
        else:
            position = self.start()

        while position.step < self.job.iterations:
            plan = self.server.plan(position.server, self.job.iterations)
            played = self.rounds.play(position, plan)
            if played.verdict is None:
                saving.given_up(played.position)
                return played.position
            emit(self._record(position, played))
            position = played.position
            stops = saving.after_round(position, plan)
            if stops:
                break
        return position

    def start(self) -> Position:
        """The position before the first step: the module as it was built."""
        binding = self.binding
        counters = torch.zeros(
            binding.counter_width,
            dtype=torch.int64,
            device=binding.device,
        )
        binding.save_counters(counters)
        row = self._row_of_first()
        server = self.server.start(row)
        return Position(server, counters)

    def _row_of_first(self) -> Tensor:
        """Rank 0's initial row, everywhere: another type of CPU may have drawn other last bits."""
        row = self.binding.read()
        if self.world.rank:
            row.zero_()
        self.world.sum_(row)
        return row

    def _scores(self, position: Position, plan: RoundPlan) -> _Scores:
        """What is evaluated at a cycle end that passes a multiple of `evaluate_every`, and at the end."""
        job = self.job
        step = position.step
        every = job.evaluate_every
        has_passed = step // every > plan.cycle.start // every
        is_last = step >= job.iterations
        if not is_last and not (plan.ends_cycle and has_passed):
            return _Scores()

        self.binding.load_counters(position.counters)
        key = random_key(job.seed, "evaluate", step)
        clients = None
        average = None
        with phase("evaluate"):
            loss, score = self._tested(job.evaluated(position.server), key)
            if job.client_samples is not None and job.metric is not None:
                clients = evaluate_clients(
                    self.binding,
                    job.data,
                    job.client_samples,
                    job.metric,
                    self.world,
                    key,
                )
            if job.evaluate_average:
                assert position.server.average is not None, "make_server asked for one"
                _, average = self._tested(position.server.average, key)

        is_finite = math.isfinite(loss)
        if score is not None:
            is_finite = is_finite and math.isfinite(score)
        if not is_finite:
            first_step = step - plan.steps + 1
            raise DivergenceError.because(
                f"the test loss or metric was not finite in round {position.state.round} (from step {first_step})"
            )
        return _Scores(loss, score, clients, average)

    def _tested(self, row: Tensor, key: int) -> tuple[float, float | None]:
        """The loss and the metric of a row on the test samples; the module stays pointed at it."""
        self.binding.point_at(row)
        return evaluate(
            self.binding,
            self.job.data,
            self.job.loss,
            self.job.metric,
            self.world,
            key,
        )

    def _record(self, before: Position, played: Played) -> Record:
        """The round as observers see it."""
        verdict = played.verdict
        assert verdict, "a round that was given up has no record"
        after = played.position
        plan = played.plan
        scores = self._scores(after, plan)

        accuracy = None
        metrics: dict[str, float] = {}
        metric = self.job.metric
        if metric is not None and scores.metric is not None:
            if metric.name == ACCURACY:
                accuracy = scores.metric
            else:
                metrics[metric.name] = scores.metric

        layers = self.binding.layout.layers
        # The d_l of Eq. 2 is measured where a layer is averaged
        discrepancy: list[float | None] = [None] * len(layers)
        for layer in plan.due:
            discrepancy[layer] = after.state.discrepancy[layer]

        # The mean over the cohort, weighted as its update is
        loss = 0.0
        for weight, own_loss in zip(verdict.weights, verdict.losses, strict=True):
            loss += weight * own_loss

        attempts = played.started.attempts_until(after, verdict.excluded)
        ledger = after.server.ledger
        return Record(
            round=after.state.round,
            step=after.step,
            cycle=before.state.cycle + 1,
            due=[layers[layer].name for layer in plan.due],
            intervals=list(before.state.intervals),
            discrepancy=discrepancy,
            loss=loss,
            test_loss=scores.loss,
            accuracy=accuracy,
            uplink_bytes=attempts.uplink_bytes,
            downlink_bytes=attempts.downlink_bytes,
            cost=ledger.relative_cost(after.step, self.job.policy.base_interval),
            excluded=list(attempts.excluded),
            metrics=metrics,
            clients=scores.clients,
            average_score=scores.average,
            uplink_share=self.job.uplink_share(ledger, after.step),
        )
