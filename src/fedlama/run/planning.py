"""The arguments of `fedlama.simulate`, checked and described: what a run directory can be written of."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from torch import nn

from fedlama.data import Dataset, Partition, default_partition
from fedlama.run.describe import described
from fedlama.run.resolve import Resolved
from fedlama.run.tables import TrainSection
from fedlama.server import Mean, ServerRule
from fedlama.training import Metric, Participation
from fedlama.training import simulate as simulate_in_memory
from fedlama.training.arguments import check_kinds, task_of
from fedlama.training.evaluation import MetricFunction
from fedlama.training.modules import check_builder
from fedlama.training.options import check_options, participation_of

DEFAULT_CHECKPOINT_MINUTES = TrainSection(iterations=1).checkpoint_minutes
# Before a run is described by them
TRANSLATED = ("server", "partition", "participation", "window", "metric")


def _defaults() -> dict[str, Any]:
    """Of the arguments that describe a run as they are; the loop itself has them."""
    taken = signature(simulate_in_memory).parameters
    describing = signature(described).parameters
    found: dict[str, Any] = {}
    for name, parameter in taken.items():
        if name not in describing or name in TRANSLATED:
            continue
        if parameter.default is not parameter.empty:
            found[name] = parameter.default
    return found


DEFAULTS = _defaults()


def plan(
    model: Callable[[], nn.Module],
    data: Dataset,
    *,
    server: ServerRule | None = None,
    partition: Partition | None = None,
    participation: float | int | Participation = 1.0,
    window: int | None = None,
    metric: MetricFunction | Metric | None = None,
    checkpoint_minutes: float = DEFAULT_CHECKPOINT_MINUTES,
    **arguments: Any,
) -> Resolved:
    """Check the arguments of `simulate` and describe them: what a run directory can be written of."""
    filled = {**DEFAULTS, **arguments}
    policy = filled["policy"]
    check_kinds(data, policy, filled["local"], server, partition)
    check_builder(model)
    checked = {name: filled[name] for name in signature(check_options).parameters}
    check_options(**checked)

    who = participation_of(participation, window)
    who.window_steps(policy)  # raises for a window that is no whole number of cycles
    own_partition = partition or default_partition(data)
    _, judged_by = task_of(data, filled["loss"], metric)
    return described(
        model,
        data,
        server=server or Mean(),
        partition=own_partition,
        participation=who,
        metric=judged_by,
        has_own_metric=metric is not None,
        checkpoint_minutes=checkpoint_minutes,
        **filled,
    )
