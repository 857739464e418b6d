"""The one training loop, as in Algorithm 1. Everything that varies is a value handed to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from fedlama.processes.world import World
from fedlama.rows import Binding, ClientStore
from fedlama.server.reduce import weighted_sum
from fedlama.training.attempts import FaultyRounds
from fedlama.training.checkpoint import Checkpoint
from fedlama.training.checkpointing import Control
from fedlama.training.cohorts import Cohorts
from fedlama.training.job import Job
from fedlama.training.played import Played
from fedlama.training.position import Position
from fedlama.training.records import Record
from fedlama.training.round_records import record_of
from fedlama.training.rounds import Rounds
from fedlama.training.saving import Saving
from fedlama.training.scoring import Scoring
from fedlama.training.seen_rows import Piece, SeenRows
from fedlama.training.trainers import Trainer

HandOut = Callable[[Record | Checkpoint | Piece], None]


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
        self.scoring = Scoring(job, binding, world)
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
            self.rounds = FaultyRounds(self.rounds, job.faults, job.options.seed)

    def run(
        self,
        emit: HandOut,
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

        # Algorithm 1, from one average to the next: local steps (line 5) until a layer falls due, its average (line 8),
        # and at a cycle's end new intervals (line 11).
        while position.step < self.job.options.iterations:
            plan = self.server.plan(position.server_state, self.job.options.iterations)
            played = self.rounds.play(position, plan)
            if played.verdict is None:
                saving.given_up(played.position)
                return played.position
            emit(self._record(played))
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
        server_state = self.server.start(row)
        return Position(server_state, counters)

    def _row_of_first(self) -> Tensor:
        """Rank 0's initial row, everywhere: another type of CPU may have drawn other last bits."""
        row = self.binding.read()
        if self.world.rank:
            row.zero_()
        self.world.sum_(row)
        return row

    def _record(self, played: Played) -> Record:
        """The round as observers see it."""
        verdict = played.verdict
        assert verdict, "a round that was given up has no record"
        # The mean over the cohort, weighted as its update is
        loss = weighted_sum(verdict.weights, verdict.losses)
        return record_of(
            started=played.started,
            after=played.position,
            plan=played.plan,
            layout=self.binding.layout,
            policy=self.job.policy,
            clients=self.job.cohort_size,
            excluded=verdict.excluded,
            loss=loss,
            scores=self.scoring.after(played.position, played.plan),
        )
