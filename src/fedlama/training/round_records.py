"""What is recorded of a round, the same in every runtime: where a run stands, and where it is evaluated its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedlama.core import Layout, Policy, RoundPlan
from fedlama.server.exclusions import Exclusion
from fedlama.training.measures import ClientScores
from fedlama.training.position import Position
from fedlama.training.records import Record


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The global model where it was evaluated; elsewhere there is nothing in it.

    Arguments:
        loss: Its loss on the test samples.
        accuracy: Its accuracy there; None where another metric was evaluated.
        metrics: That metric by its name.
        clients: How it fares with clients by themselves.
        average: The metric of a moving average beside it.
    """

    loss: float | None = None
    accuracy: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    clients: ClientScores | None = None
    average: float | None = None


def is_evaluated(step: int, plan: RoundPlan, *, every: int, iterations: int) -> bool:
    """Whether the model is evaluated after a round: at a cycle end that passes a multiple of `every`, and at the end.

    Arguments:
        step: Global steps taken when the round ends.
        plan: The round.
        every: After how many steps the model is evaluated.
        iterations: How many global steps the run has.
    """
    if step >= iterations:
        return True
    multiples_before = plan.cycle.start // every
    multiples = step // every
    return plan.ends_cycle and multiples > multiples_before


def record_of(
    *,
    started: Position,
    after: Position,
    plan: RoundPlan,
    layout: Layout,
    policy: Policy,
    clients: int,
    excluded: Sequence[Exclusion],
    loss: float,
    scores: Scores,
) -> Record:
    """The round as observers see it; attempts that came to nothing belong to it.

    Arguments:
        started: Where its last attempt began.
        after: Where the run stands after it.
        plan: The round.
        layout: The model's.
        policy: The run's.
        clients: How many train at a time.
        excluded: Who did not count in the last attempt.
        loss: The mean training loss of its clients.
        scores: Those of the global model, where it was evaluated.
    """
    # The d_l of Eq. 2 is measured where a layer is averaged
    discrepancy: list[float | None] = [None] * len(layout.layers)
    for layer in plan.due:
        discrepancy[layer] = after.policy_state.discrepancy[layer]

    attempts = started.attempts_until(after, excluded)
    return Record(
        round=after.policy_state.round,
        step=after.step,
        cycle=started.policy_state.cycle + 1,
        due=[layout.layers[layer].name for layer in plan.due],
        intervals=list(started.policy_state.intervals),
        discrepancy=discrepancy,
        loss=loss,
        test_loss=scores.loss,
        accuracy=scores.accuracy,
        uplink_bytes=attempts.uplink_bytes,
        downlink_bytes=attempts.downlink_bytes,
        cost=after.relative_cost(policy),
        excluded=list(attempts.excluded),
        metrics=dict(scores.metrics),
        clients=scores.clients,
        average_score=scores.average,
        uplink_share=after.uplink_share(policy, clients),
    )
