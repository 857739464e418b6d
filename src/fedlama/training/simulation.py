"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, get_args

from torch import nn

from fedlama.base import MAX_SEED, InputError, RunError, check_whole
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.data import Dataset, Natural, Partition
from fedlama.local import LocalRule
from fedlama.processes.devices import check_device, check_workers, is_on_gpu
from fedlama.processes.world import launched_by_torchrun
from fedlama.rows import check_dtypes, describe
from fedlama.server import Mean, ServerRule
from fedlama.training.arguments import (
    check_choice,
    check_codecs,
    check_faults,
    check_kinds,
    check_numbers,
    check_outputs,
    check_single_samples,
    task_of,
)
from fedlama.training.checkpoint import Checkpoint, Checkpointing
from fedlama.training.evaluation import Loss, Metric
from fedlama.training.faults import Faults
from fedlama.training.modules import build, torch_settings
from fedlama.training.participation import Participation
from fedlama.training.records import Record, Result
from fedlama.training.results import result_of, why_stopped
from fedlama.training.running import run_loop
from fedlama.training.setup import Setup, check_setup_memory, choose_stacked, downlink_channel, uplink_channel
from fedlama.training.trainers import EXECUTIONS, PRECISIONS
from fedlama.training.values import Job

Weighting = Literal["uniform", "samples"]  # of a client in an average
Evaluated = Literal["model", "ema"]  # ema: the exponential moving average of the server's model
WEIGHTINGS = get_args(Weighting)
EVALUATED = get_args(Evaluated)
DEFAULT_EVALUATIONS = 20


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
    weights: str = "uniform",
    layers: str = "tensor",
    adaptive: Sequence[str] | None = None,
    faults: Faults | None = None,
    loss: Loss | None = None,
    metric: Metric | None = None,
    evaluate_every: int | None = None,
    evaluate: str = "model",
    average_steps: int = 120,
    device: str = "auto",
    execution: str = "auto",
    precision: str = "float32",
    on_record: Callable[[Record], None] | None = None,
    checkpointing: Checkpointing | None = None,
) -> Result:
    """Train a federation and account for every byte.

    The same arguments give the same bits on the same type of machine, whatever the number of workers.

    Arguments:
        model: A function without arguments that builds any nn.Module; it is called once.
        data: Samples and targets, from `fedlama.data.load`, `fedlama.data.digits` or `fedlama.data.arrays`.
        policy: Which layers are averaged when, such as `fedlama.FedLAMA(6, 4)` or `fedlama.FedAvg(6)`.
        local: How a client trains, such as `fedlama.SGD(learning_rate=0.1, batch_size=16)`.
        server: What the server makes of an average (default: `fedlama.server.Mean()`, the average itself).
        uplink: The code of what clients send, such as `fedlama.compress.Rotate(1.6)` (default: float32 as it is).
        downlink: The code of what clients that stay are sent. The server keeps what it leaves out and sends it later.
            Clients that enter get the whole model as it is, so this needs a `window` of several rounds.
        partition: How samples are dealt to clients, such as `fedlama.Dirichlet(clients=32, alpha=0.5)`, or shards that
            were drawn already (default: the data's own client ids).
        participation: How many clients train at a time: a float is a fraction of all, a whole number a number of them.
        iterations: How many global steps to train; every client of a cohort takes each of them.
        seed: Decides every random draw: initial weights, partition, cohorts, batches, faults.
        workers: How many processes share the work.
        window: How many steps a cohort stays before another is drawn (default: one cycle of the policy).
        weights: What a client weighs in an average: "uniform", or "samples" for as much as it has samples.
        layers: What is averaged as one: each "tensor", or all tensors of one "module".
        adaptive: Patterns of the names of layers that may get a longer interval (default: those with a kernel).
        faults: Lets clients fail. Without it, a client whose loss or weights are not finite ends the run.
        loss: A function of outputs and targets (default: cross entropy, where targets are classes).
        metric: Another such function, reported as accuracy (default: the share of right classes).
        evaluate_every: The global model is evaluated at cycle ends that pass a multiple of so many steps (default:
            about 20 times in a run), and at the end.
        evaluate: What is evaluated, and returned as the trained module: the global "model", or "ema", a moving average
            of it that the server keeps. It costs no bytes; give it to every setting that is compared.
        average_steps: Over how many steps that average reaches back.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        execution: How a process trains its clients: "one-by-one", small models "stacked", or "auto" to choose by size.
        precision: "float32", or "bfloat16" for local steps under autocast; weights and averages stay float32.
        on_record: Called with the record of every round.
        checkpointing: Where checkpoints go, and what to resume from.

    Returns:
        What came of it, with the record of every round and the trained module.
    """
    check_kinds(data, policy, local, server, partition)
    check_codecs(uplink=uplink, downlink=downlink)
    check_whole("seed", seed, minimum=0, maximum=MAX_SEED)
    check_numbers(iterations=iterations, workers=workers, evaluate_every=evaluate_every, average_steps=average_steps)
    check_choice("precision", precision, PRECISIONS)
    check_choice("weights", weights, WEIGHTINGS)
    check_choice("execution", execution, EXECUTIONS)
    check_choice("evaluate", evaluate, EVALUATED)
    participation = _participation(participation, window)
    participation.window_steps(policy)
    check_device(device)
    if not launched_by_torchrun():
        check_workers(device, workers)
    shards = (partition or Natural()).assign(data, seed)  # shards that were dealt before give themselves
    check_faults(faults, participation.count(len(shards)))
    loss, metric = task_of(data, loss, metric)
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
        average_steps=average_steps if evaluate == "ema" else None,
    )
    started = time.perf_counter()
    on_gpu = is_on_gpu(device)
    with torch_settings(uses_gpu=on_gpu and workers == 1):
        module = build(model, seed)
        check_dtypes(module)
        check_outputs(module, data, loss, metric)
        check_single_samples(module, data, shards, local.batch_size)
        layout = describe(module, layers, adaptive)
        policy.start(layout.layers)  # refuses a policy that does not fit this model before anything is started
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
            check_setup_memory(setup, workers)
        if checkpointing and checkpointing.find:
            checkpointing.resume, checkpointing.earlier = checkpointing.find(setup.round_of)
        records = list(checkpointing.earlier) if checkpointing else []

        def take(item: Record | Checkpoint) -> None:
            if isinstance(item, Checkpoint):
                assert checkpointing, "nobody asked for checkpoints"
                checkpointing.on_checkpoint(item.encode(), item.state)
                return
            records.append(item)
            if on_record:
                on_record(item)

        with setup.store() as store:
            end = run_loop(setup, store, workers, take)
        if end.step < iterations:
            raise RunError(why_stopped(end, job))
        return result_of(setup, end, records, time.perf_counter() - started)


def default_evaluate_every(iterations: int) -> int:
    """So that a run is evaluated about 20 times."""
    return -(-iterations // DEFAULT_EVALUATIONS)


def _participation(given: float | int | Participation, window: int | None) -> Participation:
    if not isinstance(given, Participation):
        return Participation(given, window)
    if window is not None:
        raise InputError("window is given twice: put it into the Participation")
    return given
