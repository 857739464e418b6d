"""What a contestant is asked to do: a model, its data, a federation and a number of rounds."""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

CYCLE = 4  # rounds: FedLAMA(τ', 4) is timed over whole cycles
VARIABLE = "FEDLAMA_BENCHMARK_JOB"
# The pipes of a contestant that takes turns with another (turns.py), and the least seconds of a turn
TURN_PIPES = "FEDLAMA_BENCHMARK_TURN_PIPES"
ENDLESS = 10_000_000  # rounds: until the driver has had enough


@dataclass(frozen=True)
class Job:
    """Everyone takes `steps` steps of `batch` samples on `active` of `clients` clients a round; no evaluation."""

    name: str
    title: str
    # resnet20, leaf_cnn, or the widths of a fully connected network such as 64-128-128-10
    model: str
    clients: int
    active: int
    steps: int
    batch: int
    rounds: int  # timed, after `warmup` others
    warmup: int = 1
    learning_rate: float = 0.01
    seed: int = 0
    data: str = ""  # the .npz file that `prepare` wrote
    processes: int = 2
    policy: str = "fedlama"  # for fedlama itself: fedlama or fedavg
    precision: str = "float32"
    bits: float = 0.0  # for fedlama itself: of Rotate on the uplink; 0 for uncoded
    update: str = "torch.optim"  # for the bare loop: torch.optim or by hand

    def build(self) -> nn.Module:
        """The model, the same one for every contestant."""
        from fedlama import models

        torch.manual_seed(self.seed)
        if self.model in ("resnet20", "leaf_cnn"):
            return getattr(models, self.model)()
        inputs, *hidden, classes = map(int, self.model.split("-"))
        return models.mlp(classes, inputs, tuple(hidden))

    def samples(self) -> Samples:
        """The data, as stored."""
        with np.load(self.data) as stored:
            return Samples(
                **{
                    key: torch.from_numpy(stored[key])
                    for key in stored.files
                    if key != "source"
                }
            )

    def to_environment(self) -> dict[str, str]:
        """How a job reaches its contestant: also through launchers that start processes of their own."""
        return {VARIABLE: json.dumps(asdict(self))}

    @staticmethod
    def from_environment() -> Job:
        """The job of this process."""
        return Job(**json.loads(os.environ[VARIABLE]))

    def but(self, **changes: Any) -> Job:
        """The same job with some values changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Samples:
    """Client i owns samples order[offsets[i] : offsets[i + 1]]; inputs are (x / scale − mean) / std."""

    x: Tensor
    y: Tensor
    order: Tensor
    offsets: Tensor
    scale: Tensor
    mean: Tensor
    std: Tensor

    def shard(self, client: int) -> Tensor:
        """The samples of one client."""
        return self.order[self.offsets[client] : self.offsets[client + 1]]

    def draw(
        self, client: int, count: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """`count` samples of one client, from as many shuffled epochs as that takes."""
        own = self.shard(client)
        epochs = -(-count // len(own))
        return torch.cat(
            [own[torch.randperm(len(own), generator=generator)] for _ in range(epochs)]
        )[:count]

    def inputs(self, indices: Tensor | slice = slice(None)) -> Tensor:
        """These samples as a model takes them."""
        return self.x[indices].float().mul_(self._factor).add_(self._shift)

    @cached_property
    def _factor(self) -> Tensor:
        return (1 / (self.scale * self.std)).float().view(-1, *[1] * (self.x.dim() - 2))

    @cached_property
    def _shift(self) -> Tensor:
        return (-self.mean / self.std).float().view(-1, *[1] * (self.x.dim() - 2))


def seconds_per_round(stamps: Sequence[float]) -> float:
    """The median over cycles, given when each cycle of the timed rounds began, and the end of the last one.

    What else a machine does comes in bursts. A mean over all rounds has the bursts in it, and on a shared machine they
    are longer than what is compared.
    """
    cycles = [after - before for before, after in itertools.pairwise(stamps)]
    return statistics.median(cycles) / CYCLE


class Turns:
    """The turns of this contestant, if it takes turns with another.

    Arguments:
        says: The pipe to the driver.
        hears: The pipe from it.
        least: Seconds that a turn takes at least.
    """

    def __init__(self, says: int, hears: int, least: float) -> None:
        self.says = says
        self.hears = hears
        self.least = least
        self.cycles_of_a_turn = 0  # not known before the warm-up
        self.cycles = 0  # of this turn
        self.began = time.perf_counter()

    @staticmethod
    def from_environment() -> Turns | None:
        """None for a contestant that runs alone."""
        pipes = os.environ.get(TURN_PIPES)
        if pipes is None:
            return None
        says, hears, least = pipes.split(",")
        return Turns(int(says), int(hears), float(least))

    def warmed_up(self, seconds: float) -> None:
        """The warm-up is over, of which the last cycle took so long: wait for the first turn."""
        self.cycles_of_a_turn = math.ceil(self.least / seconds)
        self._end_turn(seconds)

    def cycle_ends(self) -> None:
        """One more cycle is over; the last one of a turn waits here until the other contestant has had its turn."""
        self.cycles += 1
        if self.cycles == self.cycles_of_a_turn:
            seconds = time.perf_counter() - self.began
            self._end_turn(seconds / (CYCLE * self.cycles))

    def _end_turn(self, seconds: float) -> None:
        os.write(self.says, f"{seconds!r}\n".encode())
        os.read(self.hears, 1)
        self.cycles = 0
        self.began = time.perf_counter()


class Stopwatch:
    """Seconds per round, from when the warm-up ends to when the last round does."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.turns = Turns.from_environment()
        self.stamps: dict[int, float] = {}

    def round_ends(self, number: int) -> None:
        """Round `number`, counted from 1, is over."""
        self.stamps[number] = time.perf_counter()
        if self.turns is None or number % CYCLE or number < self.job.warmup:
            return
        if number == self.job.warmup:
            self.turns.warmed_up(self.stamps[number] - self.stamps[number - CYCLE])
        else:
            self.turns.cycle_ends()

    def report(self, **more: Any) -> None:
        """Tell the driver."""
        first = self.job.warmup
        last = first + self.job.rounds
        if self.job.rounds % CYCLE:
            # A contestant that takes minutes per round is given a few rounds only.
            seconds = (self.stamps[last] - self.stamps[first]) / self.job.rounds
        else:
            ends = range(first, last + 1, CYCLE)
            seconds = seconds_per_round([self.stamps[number] for number in ends])
        answer(seconds=seconds, **more)


def answer(**result: Any) -> None:
    """A contestant's last words."""
    path = Path(os.environ["FEDLAMA_BENCHMARK_ANSWER"])
    path.write_text(
        json.dumps({"torch": torch.__version__, **result}), encoding="utf-8"
    )
