"""What a run tells: one record a round, and a result at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from fedlama.training.faults import Exclusion


@dataclass(frozen=True)
class Record:
    """One round. Lists are in layer order; bytes are those of this round, summed over clients."""

    round: int
    step: int  # global steps taken so far
    cycle: int
    due: list[str]  # the layers averaged at the end of this round
    intervals: list[int]  # in force during this round
    discrepancy: list[float | None]  # d_l of Eq. 2 for the layers due
    loss: float  # mean training loss over the cohort's steps of this round
    test_loss: float | None  # of the global model, where it was evaluated
    accuracy: float | None
    uplink_bytes: int
    downlink_bytes: int
    cost: float  # C so far, relative to aggregating everything every base interval
    excluded: list[Exclusion]


@dataclass(frozen=True)
class LayerSummary:
    """One layer's account over a whole run."""

    name: str
    size: int
    adaptive: bool
    aggregations: int
    interval: int
    uplink_bytes: int
    downlink_bytes: int


@dataclass(frozen=True)
class Result:
    """A finished run. `accuracy` and `loss` are those of the averaged global model on the test set.

    `statistics_bytes` is the part of `uplink_bytes` (and, without faults, of `downlink_bytes`) that is BatchNorm
    statistics. `model` is a module of your own with the global weights.
    """

    accuracy: float | None
    loss: float
    cost: float
    uplink_bytes: int
    downlink_bytes: int
    statistics_bytes: int
    iterations: int
    seed: int
    seconds: float
    layers: list[LayerSummary]
    records: list[Record]
    model: nn.Module

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds."""
        fields = ("accuracy", "loss", "cost", "uplink_bytes", "downlink_bytes", "statistics_bytes")
        values = {name: getattr(self, name) for name in (*fields, "iterations", "seed", "seconds")}
        return {**values, "layers": [asdict(layer) for layer in self.layers]}
