"""A bare loop: the same SGD steps in plain PyTorch, one process × one thread a core, and no federation at all.

Each process steps one model through its share of the clients' batches. Nothing is reset, averaged or sent; samples are
float32 in memory, and which samples a batch has was drawn before the clock starts. A step is torch.optim.SGD's, without
`foreach`, which is as fast on large models and faster on small ones. Or it is done by hand, without an optimizer: that
saves a small model a quarter of its time and a large one nothing.
"""

from __future__ import annotations

import multiprocessing
import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from benchmarks.job import CYCLE, Job, Turns, answer, seconds_per_round

MAX_DRAWN = 1000  # rounds


def main() -> None:
    job, context = Job.from_environment(), multiprocessing.get_context("fork")
    torch.set_num_threads(1)
    samples = job.samples()
    inputs, targets = samples.inputs(), samples.y
    generator = torch.Generator().manual_seed(job.seed)
    rounds = [
        [
            samples.draw(client, job.steps * job.batch, generator)
            for client in _cohort(job, generator)
        ]
        for _ in range(min(job.warmup + job.rounds, MAX_DRAWN))
    ]
    model = job.build()
    if job.update == "by hand":
        optimizer = ByHand(model, job.learning_rate)
    else:
        optimizer = torch.optim.SGD(
            model.parameters(), job.learning_rate, foreach=False
        )
    together, spans = context.Barrier(job.processes), context.SimpleQueue()

    def work(rank: int) -> None:
        mine = [
            indices.view(job.steps, job.batch)
            for cohort in rounds
            for indices in cohort[rank :: job.processes]
        ]
        per_round = len(mine) // len(rounds)
        turns = Turns.from_environment()
        if turns is not None:
            take_turns(turns, rank, mine[: per_round * CYCLE])
        warmup = per_round * job.warmup
        train(model, optimizer, inputs, targets, mine[:warmup])
        together.wait()
        stamps = [time.perf_counter()]
        for start in range(warmup, len(mine), per_round * CYCLE):
            cycle = mine[start : start + per_round * CYCLE]
            train(model, optimizer, inputs, targets, cycle)
            stamps.append(time.perf_counter())
        spans.put(seconds_per_round(stamps))

    def take_turns(turns: Turns, rank: int, cycle: list[Tensor]) -> None:
        """One cycle over and over; the first process speaks with the driver, the others wait for it."""
        train(model, optimizer, inputs, targets, cycle)
        together.wait()
        began = time.perf_counter()
        train(model, optimizer, inputs, targets, cycle)
        together.wait()
        if rank == 0:
            turns.warmed_up(time.perf_counter() - began)
        while True:
            together.wait()
            train(model, optimizer, inputs, targets, cycle)
            together.wait()
            if rank == 0:
                turns.cycle_ends()

    workers = [
        context.Process(target=work, args=(rank,), daemon=True)
        for rank in range(job.processes)
    ]
    for worker in workers:
        worker.start()
    # The slower one counts: a round is over when all of its clients are.
    answer(seconds=max(spans.get() for _ in workers))


def train(
    model: nn.Module,
    optimizer: Optimizer | ByHand,
    inputs: Tensor,
    targets: Tensor,
    clients: list[Tensor],
) -> None:
    """Take all steps of these clients, one after the other."""
    for batches in clients:
        for indices in batches:
            optimizer.zero_grad()
            cross_entropy(model(inputs[indices]), targets[indices]).backward()
            optimizer.step()


class ByHand:
    """Nothing but the update."""

    def __init__(self, model: nn.Module, learning_rate: float) -> None:
        self.parameters, self.learning_rate = list(model.parameters()), learning_rate

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            parameter.add_(parameter.grad, alpha=-self.learning_rate)


def _cohort(job: Job, generator: torch.Generator) -> list[int]:
    return torch.randperm(job.clients, generator=generator)[: job.active].tolist()


if __name__ == "__main__":
    main()
