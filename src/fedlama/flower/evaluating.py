"""How good the global model is, as the user's own function says."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import ArrayRecord, MetricRecord

from fedlama.core import RoundPlan
from fedlama.flower.global_model import GlobalModel
from fedlama.training.position import Position
from fedlama.training.round_records import is_evaluated

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class Evaluation:
    """Has the model evaluated where that is due.

    Arguments:
        function: The user's, called with the round and the global model; None where nobody evaluates it.
        model: The run's.
        every: After how many steps, at the next cycle's end.
        iterations: How many steps the run has.
    """

    def __init__(
        self,
        function: Evaluate | None,
        model: GlobalModel,
        *,
        every: int,
        iterations: int,
    ) -> None:
        self.function = function
        self.model = model
        self.every = every
        self.iterations = iterations
        # Of a metric other than the accuracy, and the loss
        own = getattr(function, "higher_is_better", None)
        self.higher_is_better = own is not False

    def metrics(self, position: Position, plan: RoundPlan) -> MetricRecord | None:
        """What the function says after a round; None where it says nothing, or is not due.

        Arguments:
            position: Where the run stands after the round.
            plan: The round.
        """
        is_due = is_evaluated(
            position.step,
            plan,
            every=self.every,
            iterations=self.iterations,
        )
        if self.function is None or not is_due:
            return None
        self.model.write(position)
        return self.function(position.policy_state.round, self.model.arrays)


def numbers_of(metrics: MetricRecord | None) -> dict[str, float]:
    """The single numbers of what an evaluation found, by name.

    Arguments:
        metrics: It.
    """
    scores: dict[str, float] = {}
    if metrics is None:
        return scores
    for name, value in metrics.items():
        if isinstance(value, int | float):
            scores[name] = float(value)
    return scores
