"""What a run says of itself: one record per round, and a result at its end.

The annotations are also what readers of `rounds.jsonl` and `summary.json` hold files to: pydantic takes the dataclasses
as they are. Fields that came with later versions have defaults, and fields that this version does not know are ignored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from torch import nn

from fedlama.data import Preparation
from fedlama.server.exclusions import Exclusion
from fedlama.training.measures import (
    ACCURACY,
    AS_READ,
    ClientScores,
    Count,
    CountFromOne,
    EvaluatedOn,
    Measure,
    NotNegative,
    Number,
)

__all__ = [
    "ACCURACY",
    "ClientScores",
    "EvaluatedOn",
    "LayerSummary",
    "Measure",
    "Record",
    "Summary",
    "Timing",
    "TrainingResult",
    "bits_per_number",
    "fedavg_at",
]


def fedavg_at(interval: int) -> str:
    """What costs are shares of, in words.

    Arguments:
        interval: How many steps lie between two averages of the whole model.
    """
    return f"FedAvg({interval})"


@dataclass(frozen=True)
class Record:
    """One round. Lists are in layer order; bytes are those of this round, summed over clients.

    Arguments:
        round: Its number, counted from 1.
        step: Global steps taken so far.
        cycle: The number of its cycle, counted from 1.
        due: The layers averaged at the end of this round.
        intervals: Every layer's interval, in force during this round.
        discrepancy: d_l of Eq. 2 for the layers due, None for the others.
        loss: Mean training loss over the cohort's steps of this round.
        test_loss: Of the global model, where it was evaluated.
        accuracy: The accuracy of the global model, where it was evaluated; None where another metric was.
        uplink_bytes: What clients sent.
        downlink_bytes: What clients received.
        cost: C so far (Eq. 5), relative to aggregating everything every base interval.
        excluded: Clients that did not count: who, why, and at which attempt.
        metrics: A metric other than the accuracy, by its name, where the global model was evaluated.
        clients: How clients fare by themselves, where that was evaluated; without the score of each.
        average_score: The metric of a moving average of the global model, where that was evaluated beside it.
        uplink_share: Uplink bytes so far, divided by those of uncompressed FedAvg at the base interval.
    """

    __pydantic_config__: ClassVar = AS_READ

    round: CountFromOne
    step: CountFromOne
    cycle: CountFromOne
    due: list[str]
    intervals: list[CountFromOne]
    discrepancy: list[NotNegative | None]
    loss: Number
    test_loss: Number | None = field(default=None, kw_only=True)
    accuracy: Number | None
    uplink_bytes: Count
    downlink_bytes: Count
    cost: Number
    excluded: list[Exclusion] = field(default_factory=list[Exclusion])
    metrics: dict[str, Number] = field(default_factory=dict[str, Number], kw_only=True)
    clients: ClientScores | None = field(default=None, kw_only=True)
    average_score: Number | None = field(default=None, kw_only=True)
    # Follows from the bytes
    uplink_share: Number | None = field(default=None, kw_only=True, compare=False)

    @property
    def score(self) -> float | None:
        """The metric, whatever it is called, where the global model was evaluated."""
        return _score(self.accuracy, self.metrics)

    def to_plain(self) -> dict[str, Any]:
        """A line of `rounds.jsonl`; what most runs do not have is left out there."""
        plain = asdict(self)
        for name in ("metrics", "clients", "average_score", "uplink_share"):
            value = plain[name]
            # A share or a score of zero is one
            if not value and value != 0:
                del plain[name]
        if self.clients is not None:
            del plain["clients"]["scores"]
        return plain


def _score(accuracy: float | None, metrics: dict[str, float]) -> float | None:
    if accuracy is not None:
        return accuracy
    for value in metrics.values():
        return value
    return None


@dataclass(frozen=True)
class Timing:
    """When a round was finished, in seconds since the run began: all that varies from run to run."""

    __pydantic_config__: ClassVar = AS_READ

    round: CountFromOne
    seconds: Number


@dataclass(frozen=True)
class LayerSummary:
    """One layer's account over a whole run; summaries of early versions have no bytes of layers.

    Arguments:
        name: The parameter's in the module, or the module's where that is a layer.
        size: How many parameters it has.
        adaptive: Whether it may be given another interval than the base interval.
        aggregations: κ_l, how often it was averaged.
        interval: In steps, at the end.
        uplink_bytes: Its part of what clients sent.
        downlink_bytes: Its part of what clients received.
    """

    __pydantic_config__: ClassVar = AS_READ

    name: str
    size: CountFromOne
    adaptive: bool
    aggregations: Count
    interval: CountFromOne
    uplink_bytes: Count | None = None
    downlink_bytes: Count | None = None

    def bits_per_number(self, clients: int) -> float | None:
        """What a number of this layer took on its way up.

        Arguments:
            clients: How many send at a time.
        """
        return bits_per_number(
            self.uplink_bytes,
            self.size,
            aggregations=self.aggregations,
            clients=clients,
        )


def bits_per_number(
    uplink_bytes: float | None,
    size: int | None,
    *,
    aggregations: float,
    clients: int | None,
) -> float | None:
    """The rate at which a layer was sent: 32 where nothing is coded and nobody fails; None where that is not known.

    Clients that were excluded count as if they had sent it.

    Arguments:
        uplink_bytes: What all clients sent of the layer.
        size: How many parameters it has.
        aggregations: How often it was averaged.
        clients: How many send at a time.
    """
    if uplink_bytes is None or not size:
        return None
    if not aggregations or not clients:
        return None
    numbers = size * aggregations * clients
    bits = 8 * uplink_bytes
    return bits / numbers


@dataclass(frozen=True)
class Summary:
    """What `summary.json` holds; summaries of early versions have neither `uplink_share` nor what follows it.

    What each field means, `fedlama.Result` says: that is the class that users see.
    """

    __pydantic_config__: ClassVar = AS_READ

    accuracy: Number | None
    loss: Number | None
    cost: Number
    uplink_bytes: Count
    downlink_bytes: Count
    statistics_bytes: Count = field(default=0, kw_only=True)
    iterations: CountFromOne
    seed: Count
    seconds: Number = field(default=0.0, kw_only=True)
    uplink_share: Number | None = field(default=None, kw_only=True)
    codec: str | None = field(default=None, kw_only=True)
    server: str | None = field(default=None, kw_only=True)
    local: str | None = field(default=None, kw_only=True)
    # FedLAMA(6, 1) is FedAvg(6)
    policy: str | None = field(default=None, kw_only=True, compare=False)
    cost_of: str | None = field(default=None, kw_only=True)
    metric: Measure | None = field(default=None, kw_only=True)
    metrics: dict[str, Number] = field(default_factory=dict[str, Number], kw_only=True)
    clients: ClientScores | None = field(default=None, kw_only=True)
    average_score: Number | None = field(default=None, kw_only=True)
    layers: list[LayerSummary]

    @property
    def score(self) -> float | None:
        """The metric, whatever it is called."""
        return _score(self.accuracy, self.metrics)

    @property
    def network(self) -> list[tuple[str, int]]:
        """What was trained: the name and the size of every layer."""
        return [(layer.name, layer.size) for layer in self.layers]


@dataclass(frozen=True)
class TrainingResult(Summary):
    """A finished run: its `Summary`, its records and the trained module; `fedlama.Result` explains the fields."""

    records: list[Record]
    model: nn.Module
    preparation: Preparation | None = field(default=None, kw_only=True)
    is_classifier: bool = field(default=False, kw_only=True)
    client_names: tuple[str, ...] | None = field(default=None, kw_only=True)

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds, as plain values."""
        plain: dict[str, Any] = {}
        for one in fields(Summary):
            plain[one.name] = getattr(self, one.name)
        plain["layers"] = [asdict(layer) for layer in self.layers]
        if self.metric is not None:
            plain["metric"] = asdict(self.metric)
        if not self.metrics:
            del plain["metrics"]
        if self.average_score is None:
            del plain["average_score"]
        if self.clients is None:
            del plain["clients"]
        else:
            plain["clients"] = asdict(self.clients)
        return plain
