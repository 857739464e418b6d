"""The round that is being played."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedlama.core import RoundPlan
from fedlama.training.cohorts import Cohort
from fedlama.training.position import Position


@dataclass
class Round:
    """A round that is being played.

    Arguments:
        cohort: Its clients.
        position: Where the run stands before it.
        plan: What was planned.
        entering: Whether its clients are new, and were sent the whole model.
        figures: What is known of this process's coded messages; None where nothing is coded.
    """

    cohort: Cohort
    position: Position
    plan: RoundPlan
    entering: bool
    figures: Tensor | None = None

    @property
    def steps(self) -> range:
        """The global steps of the round."""
        first = self.position.step
        return range(first, first + self.plan.steps)
