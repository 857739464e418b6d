"""The one training loop (Algorithm 1). Everything that varies is a value handed to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedlama.base import random_key
from fedlama.core import Layout, Ledger, Turn
from fedlama.processes.world import World
from fedlama.rows import Binding, exact_sums, magnitudes, squared_distances, unpack
from fedlama.training.attendance import begin_round, break_updates, diverged, given_up, judge, present_runs, set_back
from fedlama.training.checkpoint import Checkpoint, Control
from fedlama.training.evaluation import evaluate
from fedlama.training.faults import MOST_ATTEMPTS, Discarded, Stretch
from fedlama.training.records import Record
from fedlama.training.trainers import Trainer
from fedlama.training.values import Cohort, Job, Position, Reports, Verdict


class Federation:
    """A job at work in this process."""

    def __init__(self, job: Job, binding: Binding, trainer: Trainer, world: World) -> None:
        self.job, self.binding, self.trainer, self.world = job, binding, trainer, world
        self.layout: Layout = binding.layout
        self.window_steps = job.participation.window_steps(job.policy)

    def run(
        self,
        emit: Callable[[Record | Checkpoint], None],
        control: Control | None = None,
        resume: Checkpoint | None = None,
    ) -> Position:
        """Train to the last step, handing out each round's record, and checkpoints when `control` asks for them.

        Ends early, at a cycle's end and after a checkpoint, if `control` says so; and after a checkpoint where too few
        clients are left to go on.
        """
        position = self._resumed(resume) if resume else self.start()
        cohort = None
        while position.state.step < self.job.iterations:
            entering = position.state.step % self.window_steps == 0 or position.discarded is not None
            if entering or cohort is None:
                cohort = self._enter(cohort, position)
                if not entering and resume and cohort.memory_CMP.numel():
                    cohort.memory_CMP.copy_(torch.from_numpy(resume.memory_CMP[cohort.mine]))
            turn = self.job.policy.next(position.state, self.job.iterations)
            begun, verdict = self._train_and_judge(cohort, position, turn, entering)
            if self.job.faults and cohort.present < self.job.faults.min_clients:
                position = self._discard(cohort, position, begun, turn, verdict)
                if self._gives_up(position):
                    if control:
                        emit(self._checkpoint(position))
                    break
                continue
            after = self._aggregate(cohort, begun, turn, verdict)
            emit(self._record(position, after, turn, verdict))
            position = after
            may_save = control and turn.ends_cycle and self._may_save(control, position)
            if control and may_save and self._saved_and_stops(control, position, cohort, emit):
                break
        return position

    def _train_and_judge(
        self, cohort: Cohort, position: Position, turn: Turn, entering: bool
    ) -> tuple[Position, Verdict]:
        """A round up to its average: what was sent to the clients is charged, and whose update counts is known."""
        faults, stretch = self.job.faults, self._stretch(cohort, position, turn)
        absent = begin_round(cohort, faults, stretch) if faults else {}
        begun = self._charge_downlink(position, cohort.present, entering)
        reports = self._train(cohort, position.row, turn, stretch)
        verdict = judge(cohort, reports, faults, stretch, absent)
        if cohort.gone:
            set_back(cohort, position.row, position.counters)
        return begun, verdict

    def _stretch(self, cohort: Cohort, position: Position, turn: Turn) -> Stretch:
        state, job = position.state, self.job
        cycle_end = min(state.cycle_start + job.policy.cycle_steps, job.iterations)
        return Stretch(
            seed=job.seed,
            round=state.round + 1,
            attempt=position.attempt,
            cycle=range(max(state.cycle_start, cohort.entered), cycle_end),
            steps=range(state.step, state.step + turn.steps),
        )

    def _discard(self, cohort: Cohort, before: Position, begun: Position, turn: Turn, verdict: Verdict) -> Position:
        """Too few are left: nothing is averaged, what was sent stays counted, and the round waits for new clients.

        Those will begin with the server's row as it is, every layer as it was last averaged. So all copies of all
        layers are equal there, and Eq. 2 counts its steps from there.
        """
        ledger = begun.ledger.charge_uplink(
            encoded=begun.ledger.plain_bytes(turn.due, verdict.uploads),
            statistics=begun.ledger.plain_statistics_bytes(verdict.uploads),
            aggregated=False,
        )
        state = replace(before.state, synchronised_at=(before.state.step,) * len(self.layout.layers))
        entries = given_up(cohort, verdict, before.attempt)
        discarded = (before.discarded or Discarded()).extended(entries, before.ledger, ledger)
        return replace(before, state=state, ledger=ledger, attempt=before.attempt + 1, discarded=discarded)

    def _gives_up(self, position: Position) -> bool:
        """Whether to stop at a round that had too few clients; a resumed run tries new ones."""
        assert self.job.faults
        return self.job.faults.on_too_few == "stop" or position.attempt % MOST_ATTEMPTS == 0

    def start(self) -> Position:
        """The position before the first step: the module as it was built."""
        counters = torch.zeros(self.binding.counter_width, dtype=torch.int64, device=self.binding.device)
        self.binding.save_counters(counters)
        state = self.job.policy.start(self.layout.layers)
        return Position(state, Ledger.open(self.layout), self._row_of_first(), counters)

    def _resumed(self, saved: Checkpoint) -> Position:
        device = self.binding.device
        row, counters = torch.from_numpy(saved.row).to(device), torch.from_numpy(saved.counters).to(device)
        return Position(saved.state, saved.ledger, row, counters, saved.averaged, saved.attempt, saved.discarded)

    def _may_save(self, control: Control, position: Position) -> bool:
        return not control.between_windows or position.state.step % self.window_steps == 0

    def _saved_and_stops(
        self, control: Control, position: Position, cohort: Cohort, emit: Callable[[Record | Checkpoint], None]
    ) -> bool:
        """Save if any process wishes it (gathering the momentum takes all of them); whether to stop here."""
        wishes = torch.tensor(control.wishes(), dtype=torch.float64, device=self.binding.device)
        self.world.max_(wishes)
        save, stop = wishes.bool().tolist()
        if save and position.state.step < self.job.iterations:
            emit(self._checkpoint(position, self._gathered_memory(cohort, position.state.step)))
        return stop

    def _checkpoint(self, position: Position, memory_CMP: Tensor | None = None) -> Checkpoint:
        """The position as a file holds it; no momentum where new clients will begin."""
        if memory_CMP is None:
            memory_CMP = torch.zeros(0, self.trainer.rule.memory_rows, self.layout.parameter_width)
        here = position.to_cpu()
        row, counters, memory = here.row.numpy().copy(), here.counters.numpy().copy(), memory_CMP.cpu().numpy()
        return Checkpoint(here.state, here.ledger, here.averaged, row, counters, memory, here.attempt, here.discarded)

    def _gathered_memory(self, cohort: Cohort, step: int) -> Tensor:
        """Every client's momentum, in client order; none at a window's end, where it is forgotten."""
        inside = step % self.window_steps != 0
        memory_CMP = cohort.memory_CMP.new_zeros(len(cohort.clients) if inside else 0, *cohort.memory_CMP.shape[1:])
        if memory_CMP.numel():
            memory_CMP[cohort.mine] = cohort.memory_CMP
            self.world.sum_(memory_CMP)
        return memory_CMP

    def _row_of_first(self) -> Tensor:
        """Rank 0's initial row, everywhere: another type of CPU may have drawn other last bits."""
        row = self.binding.read()
        if self.world.rank:
            row.zero_()
        self.world.sum_(row)
        return row

    def _enter(self, old: Cohort | None, position: Position) -> Cohort:
        """Draw the clients of a window, set their rows to the global row and forget the momentum."""
        job, step = self.job, position.state.step
        clients = job.participation.cohort(len(job.shards), job.seed, step // self.window_steps, position.attempt)
        samples = [job.shards.size_of(client) for client in clients]
        counted = samples if job.weights == "samples" else [1] * len(samples)
        costs = [min(count, self.trainer.rule.batch_size) for count in samples]
        mine = self.world.share(costs, together=self.trainer.block)
        rows, memory, counters = self._storage(old, len(mine))
        rows.copy_(position.row)
        memory.zero_()
        counters.copy_(position.counters)
        weights = [count / sum(counted) for count in counted]
        return Cohort(clients, counted, weights, mine, rows, memory, counters, entered=step)

    def _storage(self, old: Cohort | None, size: int) -> tuple[Tensor, Tensor, Tensor]:
        if old is not None and len(old.mine) == size:
            return old.rows_CP, old.memory_CMP, old.counters_CK
        binding, memory_rows = self.binding, self.trainer.rule.memory_rows
        memory = binding.gradient.new_empty(size, memory_rows, self.layout.parameter_width)
        counters = torch.empty(size, binding.counter_width, dtype=torch.int64, device=binding.device)
        return binding.new_rows(size), memory, counters

    def _charge_downlink(self, position: Position, clients: int, entering: bool) -> Position:
        ledger = position.ledger.charge_downlink(
            entering=clients if entering else 0, staying=0 if entering else clients, averaged=position.averaged
        )
        return replace(position, ledger=ledger)

    def _train(self, cohort: Cohort, row: Tensor, turn: Turn, stretch: Stretch) -> Reports:
        """Every client's steps, and what each has to tell of them."""
        faults, slices = self.job.faults, self._averaged_slices(turn)
        limited = faults is not None and faults.norm_limit is not None
        width = 1 + len(slices) + limited
        told_CX = torch.zeros(len(cohort.clients), width, dtype=torch.float64, device=self.binding.device)
        told_CX[cohort.mine, 0] = self._step(cohort, stretch.steps)
        if faults and faults.corrupt:
            break_updates(cohort, faults, stretch, row, slices[0])
        told_CX[cohort.mine, 1 : 1 + len(slices)] = magnitudes(cohort.rows_CP, slices)
        if limited:
            changed_CS = squared_distances(row, cohort.rows_CP, self.layout.slices_of(turn.due))
            told_CX[cohort.mine, -1] = changed_CS.sum(dim=1)
        self.world.sum_(told_CX)
        norms = told_CX[:, -1].sqrt().tolist() if limited else []
        return Reports(told_CX[:, 0].tolist(), told_CX[:, 1 : 1 + len(slices)], norms)

    def _step(self, cohort: Cohort, steps: range) -> Tensor:
        """Take these steps with this process's clients; their mean losses, zero for those who are gone."""
        losses = torch.zeros(len(cohort.mine), dtype=torch.float64, device=self.binding.device)
        mine = [cohort.clients[index] for index in cohort.mine]
        for part in present_runs(cohort, self.trainer.block):
            rows, memory, counters = cohort.rows_CP[part], cohort.memory_CMP[part], cohort.counters_CK[part]
            losses[part] = self.trainer.train(mine[part], rows, memory, counters, steps)
        return losses

    def _averaged_slices(self, turn: Turn) -> list[slice]:
        return [*self.layout.slices_of(turn.due), *self.layout.statistics]

    def _aggregate(self, cohort: Cohort, position: Position, turn: Turn, verdict: Verdict) -> Position:
        """Average the due layers and the statistics, measure the distances, then overwrite the local copies."""
        slices = self._averaged_slices(turn)
        mine_weights = [verdict.weights[index] for index in cohort.mine]
        sums = exact_sums(cohort.rows_CP, mine_weights, slices, verdict.largest)
        self.world.sum_(sums)
        unpack(sums, position.row, slices)
        squared = self._mean_squared_distances(cohort, position.row, turn, verdict.weights)
        for part in slices:
            cohort.rows_CP[:, part] = position.row[part]
        counters = self._join_counters(cohort, position.counters)
        uploads, ledger = verdict.uploads, position.ledger
        state = self.job.policy.observe(position.state, turn, squared, self.layout.layers)
        return Position(
            state=state,
            ledger=ledger.charge_uplink(
                encoded=ledger.plain_bytes(turn.due, uploads), statistics=ledger.plain_statistics_bytes(uploads)
            ),
            row=position.row,
            counters=counters,
            averaged=turn.due,
            attempt=position.attempt if state.step % self.window_steps else 0,
        )

    def _mean_squared_distances(
        self, cohort: Cohort, row: Tensor, turn: Turn, weights: list[float]
    ) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² of every due layer: the numerator of Eq. 2."""
        slices = self.layout.slices_of(turn.due)
        squared_CS = torch.zeros(len(cohort.clients), len(slices), dtype=torch.float64, device=self.binding.device)
        squared_CS[cohort.mine] = squared_distances(row, cohort.rows_CP, slices)
        self.world.sum_(squared_CS)
        columns = iter(squared_CS.T.tolist())
        return {
            layer: sum(_weighted(weights, next(columns)) for _ in self.layout.layers[layer].slices)
            for layer in turn.due
        }

    def _join_counters(self, cohort: Cohort, counters: Tensor) -> Tensor:
        """Whole-number buffers are equal on every client or count upwards, so the server keeps the largest."""
        if not len(counters):
            return counters
        here = [place for place, index in enumerate(cohort.mine) if index not in cohort.gone]
        least = torch.iinfo(counters.dtype).min
        joined = cohort.counters_CK[here].amax(dim=0) if here else torch.full_like(counters, least)
        self.world.max_(joined)
        cohort.counters_CK.copy_(joined)
        return joined

    def _scores(self, position: Position, turn: Turn) -> tuple[float | None, float | None]:
        """Test loss and metric at a cycle end that passes a multiple of `evaluate_every`, and at the end."""
        step, every, cycle = position.state.step, self.job.evaluate_every, self.job.policy.cycle_steps
        passes = turn.ends_cycle and step // every > (step - cycle) // every
        if not passes and step < self.job.iterations:
            return None, None
        self.binding.point_at(position.row)
        self.binding.load_counters(position.counters)
        key = random_key(self.job.seed, "evaluate", step)
        loss, score = evaluate(self.binding, self.job.data, self.job.loss, self.job.metric, self.world, key)
        if not math.isfinite(loss) or (score is not None and not math.isfinite(score)):
            raise diverged("the test loss or metric was", position.state.round, step - turn.steps)
        return loss, score

    def _record(self, before: Position, after: Position, turn: Turn, verdict: Verdict) -> Record:
        test_loss, score = self._scores(after, turn)
        earlier = before.discarded or Discarded()
        due, layers = set(turn.due), self.layout.layers
        return Record(
            round=after.state.round,
            step=after.state.step,
            cycle=before.state.cycle + 1,
            due=[layers[index].name for index in turn.due],
            intervals=list(before.state.intervals),
            discrepancy=[value if i in due else None for i, value in enumerate(after.state.discrepancy)],
            loss=_weighted(verdict.weights, verdict.losses),
            test_loss=test_loss,
            accuracy=score,
            uplink_bytes=after.ledger.uplink_bytes - before.ledger.uplink_bytes + earlier.uplink_bytes,
            downlink_bytes=after.ledger.downlink_bytes - before.ledger.downlink_bytes + earlier.downlink_bytes,
            cost=after.ledger.relative_cost(after.state.step, self.job.policy.base_interval),
            excluded=[*earlier.excluded, *verdict.excluded],
        )


def _weighted(weights: list[float], values: list[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
