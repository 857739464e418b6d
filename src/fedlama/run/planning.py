"""The arguments of `fedlama.simulate`, checked and described: what a run directory can be written of."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.data import Dataset, Partition, default_partition
from fedlama.local import LocalRule
from fedlama.run.describe import described
from fedlama.run.resolve import Resolved
from fedlama.server import Mean, ServerRule
from fedlama.training import Faults, Metric, Participation
from fedlama.training.arguments import check_kinds, task_of
from fedlama.training.evaluation import Loss, MetricFunction
from fedlama.training.modules import check_builder
from fedlama.training.options import RunOptions
from fedlama.training.participation import ALL_CLIENTS


def plan(
    model: Callable[[], nn.Module],
    data: Dataset,
    options: RunOptions,
    *,
    policy: Policy,
    local: LocalRule,
    server: ServerRule | None = None,
    uplink: Codec | None = None,
    downlink: Codec | None = None,
    partition: Partition | None = None,
    participation: Participation = ALL_CLIENTS,
    faults: Faults | None = None,
    loss: Loss | None = None,
    metric: MetricFunction | Metric | None = None,
) -> Resolved:
    """Check the arguments of `simulate` and describe them: what a run directory can be written of."""
    check_kinds(
        data=data,
        policy=policy,
        local=local,
        server=server,
        partition=partition,
        uplink=uplink,
        downlink=downlink,
    )
    check_builder(model)
    options.check_machine()
    # Raises for a window that is no whole number of cycles
    participation.window_steps(policy)
    _, judged_by = task_of(data, loss, metric)
    return described(
        model,
        data,
        options,
        policy=policy,
        local=local,
        server=server or Mean(),
        uplink=uplink,
        downlink=downlink,
        partition=partition or default_partition(data),
        participation=participation,
        faults=faults,
        loss=loss,
        metric=judged_by,
        has_own_metric=metric is not None,
    )
