"""What is known of a round: what its clients report, whose update counts, and how it was played."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedlama.compress import Decoded
from fedlama.core import Message, RoundPlan
from fedlama.server.exclusions import Exclusion
from fedlama.training.position import Position


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What is known of every client of a cohort after a round of training, in the cohort's order."""

    losses: list[float]  # mean over the round's steps
    # The largest magnitude of every slice that is averaged, [clients, slices]
    largest: Tensor
    # Of the updates of the due layers; empty where there is no limit
    norms: list[float]
    uploads: list[Message]  # what each client sends
    # What else is known of coded messages; empty where nothing is coded
    decoded: list[Decoded]

    def finite(self) -> list[bool]:
        """Of every client, whether all its numbers that are averaged are finite."""
        are_finite = self.largest.isfinite().all(dim=1)
        return are_finite.tolist()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whose update counts: clients that are excluded weigh nothing, and all about them is zero."""

    weights: list[float]
    losses: list[float]
    largest: list[float]  # magnitudes of the slices that are averaged
    upload: Message  # what all clients sent, also those that are excluded
    counted: Message  # what those sent whose update counts
    decoded: list[Decoded]
    excluded: list[Exclusion]


@dataclass(frozen=True)
class Played:
    """A round that was played.

    Arguments:
        started: Where its last attempt started.
        position: Where the run stands after it.
        plan: What was planned.
        verdict: Whose update counted. None where too few clients were left, and the run stops.
    """

    started: Position
    position: Position
    plan: RoundPlan
    verdict: Verdict | None
