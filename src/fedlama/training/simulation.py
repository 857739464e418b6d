"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from torch import nn

from fedlama.base import InputError, RunError
from fedlama.compress import Codec
from fedlama.core import Layout, Policy, policy_within
from fedlama.core.policy_checks import start_checked
from fedlama.data import Dataset, Partition, Shards, default_partition
from fedlama.local import LocalRule
from fedlama.processes.devices import check_workers, is_on_gpu
from fedlama.processes.world import launched_by_torchrun
from fedlama.rows import check_dtypes, describe
from fedlama.server import Mean, ServerRule
from fedlama.training.arguments import (
    check_faults,
    check_kinds,
    check_numbers,
    check_outputs,
    check_preparation,
    check_single_samples,
    task_of,
)
from fedlama.training.checkpointing import Checkpointing
from fedlama.training.coding import check_window
from fedlama.training.evaluation import ClientSamples, Loss, Metric, MetricFunction
from fedlama.training.faults import Faults
from fedlama.training.job import Job
from fedlama.training.modules import build, torch_settings
from fedlama.training.observing import Observer
from fedlama.training.options import RunOptions
from fedlama.training.participation import ALL_CLIENTS, Participation
from fedlama.training.records import Record, TrainingResult
from fedlama.training.results import result_of, why_stopped
from fedlama.training.running import run_loop
from fedlama.training.setup import (
    Setup,
    check_setup_memory,
    choose_stacked,
    choose_when_to_save,
    downlink_channel,
    uplink_channel,
)


def simulate(
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
    workers: int = 1,
    on_record: Callable[[Record], None] | None = None,
    checkpointing: Checkpointing | None = None,
) -> TrainingResult:
    """Train a federation: `fedlama.simulate` without a run directory, where the arguments are explained.

    `options` are those of them that are numbers, texts and flags; `checkpointing` says where checkpoints go, and what
    to resume from.
    """
    check_kinds(
        data=data,
        policy=policy,
        local=local,
        server=server,
        partition=partition,
        uplink=uplink,
        downlink=downlink,
    )
    options.check_machine()
    check_numbers(workers=workers)
    check_window(uplink, policy, participation.window_steps(policy))
    if not launched_by_torchrun():
        check_workers(options.device, workers)

    # Shards that were dealt before give themselves
    dealing = partition or default_partition(data)
    shards = dealing.assign(data, options.seed)
    check_faults(faults, participation.count(len(shards)))
    loss, metric = task_of(data, loss, metric)
    client_samples = None
    if options.evaluate_clients:
        client_samples = _client_samples(data, shards, metric)
    if options.evaluate_average:
        _check_has_metric("evaluate_average", metric)
    job = Job(
        policy=policy_within(policy, participation.window),
        local=local,
        server_rule=server or Mean(),
        participation=participation,
        options=options,
        data=data,
        shards=shards,
        loss=loss,
        metric=metric,
        faults=faults,
        client_samples=client_samples,
    )
    started = time.perf_counter()
    uses_gpu = is_on_gpu(options.device) and workers == 1
    with torch_settings(uses_gpu=uses_gpu):
        module = build(model, options.seed)
        layout = _checked_layout(module, job)
        job = replace(
            job,
            uplink_channel=uplink_channel(uplink, layout, options.seed),
            downlink_channel=downlink_channel(downlink, layout, options.seed),
        )
        setup = Setup(
            job=job,
            module=module,
            layout=layout,
            stacked=choose_stacked(module, layout, job),
            checkpointing=checkpointing,
        )
        setup = _ready(setup, workers)
        return _run(setup, workers, on_record, started)


def _checked_layout(module: nn.Module, job: Job) -> Layout:
    """Where the module's layers are in a row, once it is sure that the job can train it."""
    check_dtypes(module)
    check_preparation(job.data)
    check_outputs(module, job.data, job.loss, job.metric)
    check_single_samples(module, job.data, job.shards, job.local.batch_size)
    layout = describe(module, job.options.layers, job.options.adaptive)
    # Refuses a policy that does not fit this model before anything is started
    start_checked(job.policy, layout.layers)
    return layout


def _ready(setup: Setup, workers: int) -> Setup:
    """The setup of a run that fits into memory, with what it goes on from."""
    if not is_on_gpu(setup.job.options.device):
        choose_when_to_save(setup, workers)
        check_setup_memory(setup, workers)
    return _going_on(setup)


def _run(
    setup: Setup,
    workers: int,
    on_record: Callable[[Record], None] | None,
    started: float,
) -> TrainingResult:
    """Train to the end; what came of it.

    Arguments:
        setup: The run.
        workers: How many processes share it.
        on_record: Called with every record.
        started: When it began, by the clock of `perf_counter`.
    """
    observer = Observer(on_record, setup.checkpointing)
    with setup.store() as store, closing(observer):
        end = run_loop(setup, store, workers, observer.take)
    if end.step < setup.job.options.iterations:
        raise RunError(why_stopped(end, setup.job))
    seconds = time.perf_counter() - started
    return result_of(
        setup=setup,
        end=end,
        records=observer.records,
        client_scores=observer.client_scores,
        seconds=seconds,
    )


def _client_samples(
    data: Dataset, shards: Shards, metric: Metric | None
) -> ClientSamples:
    _check_has_metric("evaluate_clients", metric)
    return ClientSamples.choose(data, shards)


def _check_has_metric(option: str, metric: Metric | None) -> None:
    if metric is None:
        raise InputError(
            f"{option} needs a metric, and this task has none: pass metric="
        )


def _going_on(setup: Setup) -> Setup:
    """The setup with the checkpoint that the run goes on from, which is looked for where there are several."""
    checkpointing = setup.checkpointing
    if checkpointing is None or checkpointing.find is None:
        return setup
    content, earlier = checkpointing.find(setup.round_of)
    found = replace(checkpointing, resume=content, earlier=earlier, find=None)
    return replace(setup, checkpointing=found)
