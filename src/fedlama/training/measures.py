"""What a run is judged by, and how clients fare by it: the parts that records and summaries have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from fedlama.base import Limits

# Whole numbers that JSON, float64 and pictures can all hold
Count = Annotated[int, Limits(minimum=0, maximum=1 << 62)]
CountFromOne = Annotated[int, Limits(minimum=1, maximum=1 << 62)]
Number = Annotated[float, Limits(minimum=-1e100, maximum=1e100)]
NotNegative = Annotated[float, Limits(minimum=0, maximum=1e100)]

AS_READ = {"strict": True, "extra": "ignore", "allow_inf_nan": False}

ACCURACY = "accuracy"
# Whose part of the data each client is evaluated on
EvaluatedOn = Literal["test", "training"]


@dataclass(frozen=True)
class Measure:
    """What a run is judged by.

    Arguments:
        name: Of the metric; `accuracy` is the share of right classes.
        higher_is_better: Whether more of it is better.
    """

    __pydantic_config__: ClassVar = AS_READ

    name: str
    higher_is_better: bool

    @property
    def is_accuracy(self) -> bool:
        """Whether it is a share of right answers, which is shown in percent."""
        return self.name == ACCURACY


@dataclass(frozen=True, kw_only=True)
class ClientScores:
    """The metric of the global model on each client's own samples.

    Arguments:
        on: The client's "test" samples, where the data knows whose they are; otherwise the "training" samples.
        scores: For each client, in order; None for one without such samples. Empty in records.
        mean: Over clients, each counted alike.
        worst_decile: The mean over the tenth of clients that fares worst.
        spread: The standard deviation over clients.
    """

    __pydantic_config__: ClassVar = AS_READ

    on: EvaluatedOn
    mean: Number | None
    worst_decile: Number | None
    spread: NotNegative | None
    scores: list[Number | None] = field(default_factory=list[Number | None])

    def without_scores(self) -> ClientScores:
        """The same for a record: a million numbers per evaluation would be too many."""
        return ClientScores(
            on=self.on,
            mean=self.mean,
            worst_decile=self.worst_decile,
            spread=self.spread,
        )
