"""The one training loop (Algorithm 1). Everything that varies is a value handed to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedlama.core import DivergenceError, Layout, Ledger, Policy, PolicyState, Turn, random_key
from fedlama.data import Dataset, Shards
from fedlama.rows import Binding, exact_sums, magnitudes, squared_distances, unpack
from fedlama.training.checkpoint import Checkpoint, Control
from fedlama.training.participation import Participation
from fedlama.training.records import Record
from fedlama.training.stacked import StackedTrainer
from fedlama.training.trainer import Loss, Metric, Trainer, evaluate
from fedlama.training.world import World


@dataclass(frozen=True)
class Job:
    """All that a run is, but for its position."""

    policy: Policy
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


@dataclass(frozen=True)
class Position:
    """Where a run stands after a round; `row` and `counters` are the global model."""

    state: PolicyState
    ledger: Ledger
    row: Tensor
    counters: Tensor
    averaged: tuple[int, ...] = ()  # the layers averaged after the latest round

    def to_cpu(self) -> Position:
        """The same position as tensors in main memory."""
        return replace(self, row=torch.as_tensor(self.row).cpu(), counters=torch.as_tensor(self.counters).cpu())

    def as_arrays(self) -> Position:
        """With numpy arrays in place of tensors: those travel between processes as plain bytes."""
        return replace(self, row=self.row.numpy(), counters=self.counters.numpy())


@dataclass(frozen=True)
class Cohort:
    """The clients of one window; the rows are those of `mine`, this process's share of them."""

    clients: list[int]
    weights: list[float]
    mine: list[int]  # indices into clients
    rows_CP: Tensor
    memory_CMP: Tensor  # what the local rule keeps: momentum
    counters_CK: Tensor  # whole-number buffers


@dataclass(frozen=True)
class Reports:
    """What the clients of a cohort tell after a round of training, in their order."""

    losses: list[float]  # mean over the round's steps
    largest_CS: Tensor  # the largest magnitude of every slice that is averaged


class Federation:
    """A job at work in this process."""

    def __init__(self, job: Job, binding: Binding, trainer: Trainer | StackedTrainer, world: World) -> None:
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

        Ends early, at a cycle's end and after a checkpoint, if `control` says so.
        """
        position = self._resumed(resume) if resume else self.start()
        cohort = None
        while position.state.step < self.job.iterations:
            before = position
            entering = position.state.step % self.window_steps == 0
            if entering or cohort is None:
                cohort = self._enter(cohort, position)
                if not entering and resume and resume.memory_CMP.size:
                    cohort.memory_CMP.copy_(torch.from_numpy(resume.memory_CMP[cohort.mine]))
            turn = self.job.policy.next(position.state, self.job.iterations)
            position = self._charge_downlink(position, len(cohort.clients), entering)
            reports = self._train(cohort, position.state, turn)
            position = self._aggregate(cohort, position, turn, reports)
            emit(self._record(before, position, turn, cohort, reports))
            if control and turn.ends_cycle and self._saved_and_stops(control, position, cohort, emit):
                break
        return position

    def start(self) -> Position:
        """The position before the first step: the module as it was built."""
        counters = torch.zeros(self.binding.counter_width, dtype=torch.int64, device=self.binding.device)
        self.binding.save_counters(counters)
        state = self.job.policy.start(self.layout.layers)
        return Position(state, Ledger.open(self.layout), self._row_of_first(), counters)

    def _resumed(self, saved: Checkpoint) -> Position:
        device = self.binding.device
        row, counters = torch.from_numpy(saved.row).to(device), torch.from_numpy(saved.counters).to(device)
        return Position(saved.state, saved.ledger, row, counters, saved.averaged)

    def _saved_and_stops(
        self, control: Control, position: Position, cohort: Cohort, emit: Callable[[Record | Checkpoint], None]
    ) -> bool:
        """Save if any process wishes it (gathering the momentum takes all of them); whether to stop here."""
        wishes = torch.tensor(control.wishes(), dtype=torch.float64, device=self.binding.device)
        self.world.max_(wishes)
        save, stop = wishes.bool().tolist()
        if save and position.state.step < self.job.iterations:
            memory = self._gathered_memory(cohort, position.state.step)
            here = position.to_cpu()
            row, counters = here.row.numpy().copy(), here.counters.numpy().copy()
            emit(Checkpoint(position.state, position.ledger, position.averaged, row, counters, memory.cpu().numpy()))
        return stop

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
        """A window starts: draw its clients, set their rows to the global row and forget the momentum."""
        job = self.job
        clients = job.participation.cohort(len(job.shards), job.seed, position.state.step // self.window_steps)
        samples = [job.shards.size_of(client) for client in clients]
        counted = samples if job.weights == "samples" else [1] * len(samples)
        costs = [min(count, self.trainer.rule.batch_size) for count in samples]
        mine = self.world.share(costs, together=self.trainer.at_once)
        rows, memory, counters = self._storage(old, len(mine))
        rows.copy_(position.row)
        memory.zero_()
        counters.copy_(position.counters)
        return Cohort(clients, [count / sum(counted) for count in counted], mine, rows, memory, counters)

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

    def _train(self, cohort: Cohort, state: PolicyState, turn: Turn) -> Reports:
        """Every client's steps, and what each has to tell of them; one that is not finite ends the run."""
        steps = range(state.step, state.step + turn.steps)
        mine = [cohort.clients[index] for index in cohort.mine]
        slices = self._averaged_slices(turn)
        told_CX = torch.zeros(len(cohort.clients), 1 + len(slices), dtype=torch.float64, device=self.binding.device)
        losses = self.trainer.train(mine, cohort.rows_CP, cohort.memory_CMP, cohort.counters_CK, steps)
        told_CX[cohort.mine, 0] = losses
        told_CX[cohort.mine, 1:] = magnitudes(cohort.rows_CP, slices)
        self.world.sum_(told_CX)
        reports = Reports(told_CX[:, 0].tolist(), told_CX[:, 1:])
        finite = reports.largest_CS.isfinite().all(dim=1).tolist()
        for client, loss, weights_are_finite in zip(cohort.clients, reports.losses, finite, strict=True):
            if not math.isfinite(loss):
                raise _diverged(f"the loss of client {client} was", state)
            if not weights_are_finite:
                raise _diverged(f"the weights of client {client} were", state)
        return reports

    def _averaged_slices(self, turn: Turn) -> list[slice]:
        return [*self.layout.slices_of(turn.due), *self.layout.statistics]

    def _aggregate(self, cohort: Cohort, position: Position, turn: Turn, reports: Reports) -> Position:
        """Average the due layers and the statistics, measure the distances, then overwrite the local copies."""
        slices, largest = self._averaged_slices(turn), reports.largest_CS.amax(dim=0).tolist()
        mine_weights = [cohort.weights[index] for index in cohort.mine]
        sums = exact_sums(cohort.rows_CP, mine_weights, slices, largest)
        self.world.sum_(sums)
        unpack(sums, position.row, slices)
        squared = self._mean_squared_distances(cohort, position.row, turn)
        for part in slices:
            cohort.rows_CP[:, part] = position.row[part]
        counters = self._join_counters(cohort, position.counters)
        clients, ledger = len(cohort.clients), position.ledger
        return Position(
            state=self.job.policy.observe(position.state, turn, squared, self.layout.layers),
            ledger=ledger.charge_uplink(
                encoded=ledger.plain_bytes(turn.due, clients), statistics=ledger.plain_statistics_bytes(clients)
            ),
            row=position.row,
            counters=counters,
            averaged=turn.due,
        )

    def _mean_squared_distances(self, cohort: Cohort, row: Tensor, turn: Turn) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² of every due layer: the numerator of Eq. 2."""
        slices = self.layout.slices_of(turn.due)
        squared_CS = torch.zeros(len(cohort.clients), len(slices), dtype=torch.float64, device=self.binding.device)
        squared_CS[cohort.mine] = squared_distances(row, cohort.rows_CP, slices)
        self.world.sum_(squared_CS)
        columns = iter(squared_CS.T.tolist())
        return {
            layer: sum(_weighted(cohort.weights, next(columns)) for _ in self.layout.layers[layer].slices)
            for layer in turn.due
        }

    def _join_counters(self, cohort: Cohort, counters: Tensor) -> Tensor:
        """Whole-number buffers are equal on every client or count upwards, so the server keeps the largest."""
        if not len(counters):
            return counters
        joined = cohort.counters_CK.amax(dim=0) if cohort.mine else counters.clone()
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
            state = position.state
            raise _diverged(
                "the test loss or metric was", replace(state, round=state.round - 1, step=step - turn.steps)
            )
        return loss, score

    def _record(self, before: Position, after: Position, turn: Turn, cohort: Cohort, reports: Reports) -> Record:
        test_loss, score = self._scores(after, turn)
        due, layers = set(turn.due), self.layout.layers
        return Record(
            round=after.state.round,
            step=after.state.step,
            cycle=before.state.cycle + 1,
            due=[layers[index].name for index in turn.due],
            intervals=list(before.state.intervals),
            discrepancy=[value if i in due else None for i, value in enumerate(after.state.discrepancy)],
            loss=_weighted(cohort.weights, reports.losses),
            test_loss=test_loss,
            accuracy=score,
            uplink_bytes=after.ledger.uplink_bytes - before.ledger.uplink_bytes,
            downlink_bytes=after.ledger.downlink_bytes - before.ledger.downlink_bytes,
            cost=after.ledger.relative_cost(after.state.step, self.job.policy.base_interval),
            excluded=[],
        )


def _diverged(what: str, state: PolicyState) -> DivergenceError:
    return DivergenceError(
        f"{what} not finite in round {state.round + 1} (from step {state.step + 1}): "
        f"the training diverged, so lower local.learning_rate"
    )


def _weighted(weights: list[float], values: list[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
