"""What a run says of itself: one record per round, and a result at its end.

The annotations are also what readers of `rounds.jsonl` and `summary.json` hold files to: pydantic takes the dataclasses
as they are. Fields that came with later versions have defaults, and fields that this version does not know are ignored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, ClassVar

from torch import nn

from fedlama.base import Limits
from fedlama.training.faults import Exclusion

# Whole numbers that JSON, float64 and pictures can all hold
Count = Annotated[int, Limits(minimum=0, maximum=1 << 62)]
Positive = Annotated[int, Limits(minimum=1, maximum=1 << 62)]
Number = Annotated[float, Limits(minimum=-1e100, maximum=1e100)]
NotNegative = Annotated[float, Limits(minimum=0, maximum=1e100)]

AS_READ = {"strict": True, "extra": "ignore", "allow_inf_nan": False}


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
        accuracy: The metric of the global model, where it was evaluated.
        uplink_bytes: What clients sent.
        downlink_bytes: What clients received.
        cost: C so far (Eq. 5), relative to aggregating everything every base interval.
        excluded: Clients that did not count: who, why, and at which attempt.
    """

    __pydantic_config__: ClassVar = AS_READ

    round: Positive
    step: Positive
    cycle: Positive
    due: list[str]
    intervals: list[Positive]
    discrepancy: list[NotNegative | None]
    loss: Number
    test_loss: Number | None = field(default=None, kw_only=True)
    accuracy: Number | None
    uplink_bytes: Count
    downlink_bytes: Count
    cost: Number
    excluded: list[Exclusion] = field(default_factory=list[Exclusion])


@dataclass(frozen=True)
class Timing:
    """When a round was finished, in seconds since the run began: all that varies from run to run."""

    __pydantic_config__: ClassVar = AS_READ

    round: Positive
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
    size: Positive
    adaptive: bool
    aggregations: Count
    interval: Positive
    uplink_bytes: Count | None = None
    downlink_bytes: Count | None = None


@dataclass(frozen=True)
class Summary:
    """What `summary.json` holds; summaries of early versions have neither `uplink_share` nor what follows it.

    Arguments:
        accuracy: The metric of the averaged global model on the test set; None where there is none.
        loss: Its loss there.
        cost: C of Eq. 5, relative to aggregating everything every base interval.
        uplink_bytes: What all clients sent.
        downlink_bytes: What all clients received.
        statistics_bytes: The part of the uplink (and, without faults or codecs, of the downlink) that is BatchNorm
            statistics.
        iterations: Global steps taken.
        seed: The run's.
        seconds: How long it took.
        uplink_share: Uplink bytes divided by those of uncompressed FedAvg at the base interval with as many clients.
        codec: The uplink's.
        server: The server's rule.
        local: The clients' rule.
        layers: The account of every layer.
    """

    __pydantic_config__: ClassVar = AS_READ

    accuracy: Number | None
    loss: Number
    cost: Number
    uplink_bytes: Count
    downlink_bytes: Count
    statistics_bytes: Count = field(default=0, kw_only=True)
    iterations: Positive
    seed: Count
    seconds: Number = field(default=0.0, kw_only=True)
    uplink_share: Number | None = field(default=None, kw_only=True)
    codec: str | None = field(default=None, kw_only=True)
    server: str | None = field(default=None, kw_only=True)
    local: str | None = field(default=None, kw_only=True)
    layers: list[LayerSummary]


@dataclass(frozen=True)
class Result(Summary):
    """A finished run: all of its `Summary`, and

    Arguments:
        records: One per round.
        model: A module of your own with the global weights.
    """

    records: list[Record]
    model: nn.Module

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds, as plain values."""
        plain = {one.name: getattr(self, one.name) for one in fields(Summary)}
        plain["layers"] = [asdict(layer) for layer in self.layers]
        return plain
