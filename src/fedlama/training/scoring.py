"""The global model where it is evaluated: on the test samples, with each client, and beside its moving average."""

from __future__ import annotations

import math

from torch import Tensor

from fedlama.base import DivergenceError, random_key
from fedlama.core import RoundPlan
from fedlama.processes.world import World
from fedlama.rows import Binding
from fedlama.training.evaluation import evaluate, evaluate_clients
from fedlama.training.job import Job
from fedlama.training.measures import ACCURACY, ClientScores
from fedlama.training.phases import phase
from fedlama.training.position import Position
from fedlama.training.round_records import Scores, is_evaluated


class Scoring:
    """Evaluates the global model, all processes together.

    Arguments:
        job: The run: when it evaluates, and what.
        binding: The module at work in this process.
        world: The processes that share the run.
    """

    def __init__(self, job: Job, binding: Binding, world: World) -> None:
        self.job = job
        self.binding = binding
        self.world = world

    def after(self, position: Position, plan: RoundPlan) -> Scores:
        """What an evaluation says of the global model after a round; nothing where none is due.

        Arguments:
            position: Where the run stands after the round.
            plan: The round.
        """
        job = self.job
        is_due = is_evaluated(
            position.step,
            plan,
            every=job.options.evaluation_interval,
            iterations=job.options.iterations,
        )
        if not is_due:
            return Scores()

        self.binding.load_counters(position.counters)
        key = random_key(job.options.seed, "evaluate", position.step)
        with phase("evaluate"):
            # In this order: clients' samples are evaluated with the row that the module is pointed at.
            loss, score = self._tested(job.evaluated(position.server_state), key)
            clients = self._with_clients(key)
            average = self._of_average(position, key)
        _check_finite(loss, score, position, plan)

        accuracy = None
        metrics: dict[str, float] = {}
        if job.metric is not None and score is not None:
            if job.metric.name == ACCURACY:
                accuracy = score
            else:
                metrics[job.metric.name] = score
        return Scores(
            loss=loss,
            accuracy=accuracy,
            metrics=metrics,
            clients=clients,
            average=average,
        )

    def _tested(self, row: Tensor, key: int) -> tuple[float, float | None]:
        """The loss and the metric of a row on the test samples; the module stays pointed at it."""
        self.binding.point_at(row)
        return evaluate(
            binding=self.binding,
            data=self.job.data,
            loss=self.job.loss,
            metric=self.job.metric,
            world=self.world,
            key=key,
        )

    def _with_clients(self, key: int) -> ClientScores | None:
        """How the module fares on each client's samples, where that is asked for."""
        job = self.job
        if job.client_samples is None or job.metric is None:
            return None
        return evaluate_clients(
            binding=self.binding,
            data=job.data,
            samples=job.client_samples,
            metric=job.metric,
            world=self.world,
            key=key,
        )

    def _of_average(self, position: Position, key: int) -> float | None:
        """The metric of the model's moving average, where that is asked for."""
        if not self.job.options.evaluate_average:
            return None
        average = position.server_state.average
        assert average is not None, "make_server asked for one"
        _, score = self._tested(average, key)
        return score


def _check_finite(
    loss: float, score: float | None, position: Position, plan: RoundPlan
) -> None:
    """Raise DivergenceError unless the loss, and the metric where there is one, are numbers."""
    found = [loss]
    if score is not None:
        found.append(score)
    if all(math.isfinite(value) for value in found):
        return
    first_step = position.step - plan.steps + 1
    raise DivergenceError.because(
        f"the test loss or metric was not finite in round {position.policy_state.round} (from step {first_step})"
    )
