"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from torch import nn

from fedlama.base import InputError, RunError
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.data import Dataset, Partition, Shards, default_partition
from fedlama.local import LocalRule
from fedlama.processes.devices import check_workers, is_on_gpu
from fedlama.processes.world import launched_by_torchrun
from fedlama.rows import Grouping, check_dtypes, describe
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
from fedlama.training.job import DEFAULT_AVERAGE_STEPS, Evaluated, Job
from fedlama.training.modules import build, torch_settings
from fedlama.training.observing import Observer
from fedlama.training.options import (
    Weighting,
    check_options,
    default_evaluate_every,
    participation_of,
)
from fedlama.training.participation import Participation
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
from fedlama.training.trainers import Execution, Precision


def simulate(
    model: Callable[[], nn.Module],
    data: Dataset,
    *,
    policy: Policy,
    local: LocalRule,
    server: ServerRule | None = None,
    uplink: Codec | None = None,
    downlink: Codec | None = None,
    partition: Partition | None = None,
    participation: float | int | Participation = 1.0,
    iterations: int,
    seed: int = 0,
    workers: int = 1,
    window: int | None = None,
    weights: Weighting = "uniform",
    layers: Grouping = "tensor",
    adaptive: Sequence[str] | None = None,
    faults: Faults | None = None,
    loss: Loss | None = None,
    metric: MetricFunction | Metric | None = None,
    evaluate_every: int | None = None,
    evaluate: Evaluated = "model",
    evaluate_clients: bool = False,
    evaluate_average: bool = False,
    average_steps: int = DEFAULT_AVERAGE_STEPS,
    device: str = "auto",
    execution: Execution = "auto",
    precision: Precision = "float32",
    on_record: Callable[[Record], None] | None = None,
    checkpointing: Checkpointing | None = None,
) -> TrainingResult:
    """Train a federation: `fedlama.simulate` without a run directory, where the arguments are explained.

    `checkpointing` says where checkpoints go, and what to resume from.
    """
    check_kinds(data, policy, local, server, partition)
    check_options(
        uplink=uplink,
        downlink=downlink,
        iterations=iterations,
        seed=seed,
        weights=weights,
        evaluate_every=evaluate_every,
        evaluate=evaluate,
        evaluate_clients=evaluate_clients,
        evaluate_average=evaluate_average,
        average_steps=average_steps,
        device=device,
        execution=execution,
        precision=precision,
    )
    check_numbers(workers=workers)
    participation = participation_of(participation, window)
    check_window(uplink, policy, participation.window_steps(policy))
    if not launched_by_torchrun():
        check_workers(device, workers)
    # Shards that were dealt before give themselves
    dealing = partition or default_partition(data)
    shards = dealing.assign(data, seed)
    check_faults(faults, participation.count(len(shards)))
    loss, metric = task_of(data, loss, metric)
    client_samples = None
    if evaluate_clients:
        client_samples = _client_samples(data, shards, metric)
    if evaluate_average and metric is None:
        raise InputError(
            "evaluate_average needs a metric, and this task has none: pass metric="
        )
    job = Job(
        policy=policy,
        local=local,
        server=server or Mean(),
        participation=participation,
        weights=weights,
        iterations=iterations,
        evaluate_every=evaluate_every or default_evaluate_every(iterations),
        seed=seed,
        precision=precision,
        data=data,
        shards=shards,
        loss=loss,
        metric=metric,
        faults=faults,
        evaluate=evaluate,
        evaluate_average=evaluate_average,
        average_steps=average_steps,
        client_samples=client_samples,
    )
    started = time.perf_counter()
    on_gpu = is_on_gpu(device)
    with torch_settings(uses_gpu=on_gpu and workers == 1):
        module = build(model, seed)
        check_dtypes(module)
        check_preparation(data)
        check_outputs(module, data, loss, metric)
        check_single_samples(module, data, shards, local.batch_size)
        layout = describe(module, layers, adaptive)
        # Refuses a policy that does not fit this model before anything is started
        policy.start(layout.layers)
        job = replace(
            job,
            uplink=uplink_channel(uplink, layout, seed),
            downlink=downlink_channel(downlink, layout, seed),
        )
        setup = Setup(
            job=job,
            module=module,
            layout=layout,
            stacked=choose_stacked(execution, module, layout, job),
            device=device,
            checkpointing=checkpointing,
        )
        if not on_gpu:
            choose_when_to_save(setup, workers)
            check_setup_memory(setup, workers)
        setup = _going_on(setup)
        observer = Observer(on_record, setup.checkpointing)
        with setup.store() as store, closing(observer):
            end = run_loop(setup, store, workers, observer.take)
        if end.step < iterations:
            raise RunError(why_stopped(end, job))
        seconds = time.perf_counter() - started
        return result_of(
            setup,
            end,
            observer.records,
            observer.client_scores,
            seconds,
        )


def _client_samples(
    data: Dataset, shards: Shards, metric: Metric | None
) -> ClientSamples:
    if metric is None:
        raise InputError(
            "evaluate_clients needs a metric, and this task has none: pass metric="
        )
    return ClientSamples.choose(data, shards)


def _going_on(setup: Setup) -> Setup:
    """The setup with the checkpoint that the run goes on from, which is looked for where there are several."""
    checkpointing = setup.checkpointing
    if checkpointing is None or checkpointing.find is None:
        return setup
    content, earlier = checkpointing.find(setup.round_of)
    found = replace(checkpointing, resume=content, earlier=earlier, find=None)
    return replace(setup, checkpointing=found)
