"""The values that the loop works on: a job, where it stands, and the clients that are at work."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedlama.core import Ledger, Policy, PolicyState
from fedlama.data import Dataset, Shards
from fedlama.training.evaluation import Loss, Metric
from fedlama.training.faults import Discarded, Faults
from fedlama.training.participation import Participation


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
    faults: Faults | None = None


@dataclass(frozen=True)
class Position:
    """Where a run stands after a round; `row` and `counters` are the global model."""

    state: PolicyState
    ledger: Ledger
    row: Tensor
    counters: Tensor
    averaged: tuple[int, ...] = ()  # the layers averaged after the latest round
    attempt: int = 0  # how many cohorts of this window were given up
    discarded: Discarded | None = None  # of this round; None where it is tried for the first time

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
    counts: list[int]  # what each weighs, before the weights are made to add up to one
    weights: list[float]  # where all are there
    mine: list[int]  # indices into clients
    rows_CP: Tensor
    memory_CMP: Tensor  # what the local rule keeps: momentum
    counters_CK: Tensor  # whole-number buffers
    entered: int  # the global step before which it came
    gone: set[int] = field(default_factory=set)  # indices of those who take no part before the next cycle

    def present_weights(self) -> list[float]:
        """Those of an average over the clients that are there; the others weigh nothing."""
        if not self.gone:
            return self.weights
        total = sum(count for index, count in enumerate(self.counts) if index not in self.gone)
        return [0.0 if index in self.gone else count / total for index, count in enumerate(self.counts)]

    @property
    def present(self) -> int:
        """How many clients are there."""
        return len(self.clients) - len(self.gone)


@dataclass(frozen=True)
class Reports:
    """What the clients of a cohort tell after a round of training, in their order."""

    losses: list[float]  # mean over the round's steps
    largest_CS: Tensor  # the largest magnitude of every slice that is averaged
    norms: list[float]  # of the updates of the due layers; empty where there is no limit


@dataclass(frozen=True)
class Verdict:
    """What the server makes of the reports: clients that are left out weigh nothing, and all about them is zero."""

    weights: list[float]
    losses: list[float]
    largest: list[float]  # magnitudes of the slices that are averaged
    excluded: list[dict[str, Any]]  # as in the record
    uploads: int  # how many sent something
