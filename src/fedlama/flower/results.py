"""What came of a Flower run: its scores as records have them, and its result."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from fedlama.core import Layout
from fedlama.flower.options import Options
from fedlama.training.position import Position
from fedlama.training.records import (
    ACCURACY,
    Measure,
    Record,
    TrainingResult,
    fedavg_at,
)
from fedlama.training.results import layer_summaries
from fedlama.training.round_records import Scores

LOSS = "loss"  # of what `evaluate_fn` returns


def scores_of(said: Mapping[str, float]) -> Scores:
    """What an evaluation found, as a record has it.

    Arguments:
        said: What `evaluate_fn` said, by name.
    """
    return Scores(
        loss=said.get(LOSS),
        accuracy=said.get(ACCURACY),
        metrics=_own_metric(said),
    )


def _own_metric(scores: Mapping[str, float]) -> dict[str, float]:
    """The metric that a model is judged by where `evaluate_fn` has no accuracy: the first that is no loss."""
    if ACCURACY in scores:
        return {}
    for name, value in scores.items():
        if name != LOSS:
            return {name: value}
    return {}


def result_of(
    end: Position,
    records: list[Record],
    module: nn.Module,
    *,
    layout: Layout,
    options: Options,
    population: int,
    local: str,
    higher_is_better: bool,
    seconds: float,
) -> TrainingResult:
    """What came of a run that reached its last step.

    Arguments:
        end: Where it stands.
        records: One per round; the last has a score, where the model was evaluated.
        module: The model with the global weights.
        layout: Its layers.
        options: What the strategy was given.
        population: How many clients there are.
        local: How they train, as they say.
        higher_is_better: Whether more of a metric other than the accuracy is better.
        seconds: How long the run took.
    """
    last = records[-1]
    ledger = end.server_state.ledger
    policy = options.policy
    clients = options.participation.count(population)
    measure: Measure | None = None
    if last.accuracy is not None:
        measure = Measure(ACCURACY, higher_is_better=True)
    for name in last.metrics:
        measure = Measure(name, higher_is_better=higher_is_better)
    codec = "none"
    if options.uplink is not None:
        codec = str(options.uplink)
    return TrainingResult(
        accuracy=last.accuracy,
        metric=measure,
        metrics=dict(last.metrics),
        loss=last.test_loss,
        cost=end.relative_cost(policy),
        uplink_bytes=ledger.uplink_bytes,
        downlink_bytes=ledger.downlink_bytes,
        statistics_bytes=ledger.statistics_uplink,
        iterations=end.step,
        seed=options.seed,
        seconds=seconds,
        uplink_share=end.uplink_share(policy, clients),
        codec=codec,
        server=str(options.server),
        local=local,
        policy=str(policy),
        cost_of=fedavg_at(policy.base_interval),
        layers=layer_summaries(end, layout),
        records=records,
        model=module,
    )
