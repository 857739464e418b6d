"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Literal, get_args

from torch import nn

from fedlama.base import MAX_SEED, InputError, RunError, check_whole
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.data import Dataset, Partition, Shards, default_partition
from fedlama.local import LocalRule
from fedlama.processes.bfloat16 import check_bfloat16
from fedlama.processes.devices import check_device, check_workers, is_on_gpu
from fedlama.processes.world import launched_by_torchrun
from fedlama.rows import Grouping, check_dtypes, describe
from fedlama.server import Mean, ServerRule
from fedlama.training.arguments import (
    check_choice,
    check_codecs,
    check_faults,
    check_flag,
    check_kinds,
    check_numbers,
    check_outputs,
    check_preparation,
    check_single_samples,
    task_of,
)
from fedlama.training.checkpoint import Checkpoint
from fedlama.training.checkpointing import Checkpointing
from fedlama.training.coding import check_window
from fedlama.training.evaluation import ClientSamples, Loss, Metric, MetricFunction
from fedlama.training.faults import Faults
from fedlama.training.job import DEFAULT_AVERAGE_STEPS, Evaluated, Job
from fedlama.training.modules import build, torch_settings
from fedlama.training.participation import Participation
from fedlama.training.records import ClientScores, Record, TrainingResult
from fedlama.training.results import result_of, why_stopped
from fedlama.training.running import run_loop
from fedlama.training.seen_rows import Keeping, Piece
from fedlama.training.setup import (
    Setup,
    check_setup_memory,
    choose_stacked,
    choose_when_to_save,
    downlink_channel,
    uplink_channel,
)
from fedlama.training.trainers import EXECUTIONS, PRECISIONS, Execution, Precision

Weighting = Literal["uniform", "samples"]  # of a client in an average
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
        observer = _Observer(on_record, setup.checkpointing)
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


class _Observer:
    """Takes what the loop hands out, in the process that called `simulate`.

    Arguments:
        on_record: Called with each record, if anybody wants to know.
        checkpointing: Where checkpoints go, and the records before the one to go on from, if anybody keeps any.
    """

    def __init__(
        self,
        on_record: Callable[[Record], None] | None,
        checkpointing: Checkpointing | None,
    ) -> None:
        self.records: list[Record] = []
        if checkpointing is not None:
            self.records += checkpointing.earlier
        self.on_record = on_record
        self.keeping: Keeping | None = None
        if checkpointing is not None:
            self.keeping = Keeping(checkpointing)
        # Of the last round, with the score of each client
        self.client_scores: ClientScores | None = None

    def take(self, item: Record | Checkpoint | Piece) -> None:
        """A round's record, or a checkpoint, or the next piece of that."""
        if isinstance(item, Checkpoint | Piece):
            assert self.keeping, "nobody asked for checkpoints"
            self.keeping.take(item)
            return

        self.client_scores = item.clients
        if item.clients is not None:
            without_scores = item.clients.without_scores()
            item = replace(item, clients=without_scores)
        self.records.append(item)
        if self.on_record:
            self.on_record(item)

    def close(self) -> None:
        """Nothing more will come."""
        if self.keeping is not None:
            self.keeping.close()


def check_options(
    *,
    uplink: Codec | None,
    downlink: Codec | None,
    iterations: int,
    seed: int,
    weights: Weighting,
    evaluate_every: int | None,
    evaluate: Evaluated,
    evaluate_clients: bool,
    evaluate_average: bool,
    average_steps: int,
    device: str,
    execution: Execution,
    precision: Precision,
) -> None:
    """Raise InputError unless each of these arguments of `simulate` is allowed by itself."""
    check_codecs(uplink=uplink, downlink=downlink)
    check_whole("seed", seed, minimum=0, maximum=MAX_SEED)
    check_numbers(
        iterations=iterations,
        evaluate_every=evaluate_every,
        average_steps=average_steps,
    )
    check_choice("precision", precision, PRECISIONS)
    check_choice("weights", weights, WEIGHTINGS)
    check_choice("execution", execution, EXECUTIONS)
    check_choice("evaluate", evaluate, EVALUATED)
    check_flag("evaluate_clients", evaluate_clients)
    check_flag("evaluate_average", evaluate_average)
    if evaluate_average and evaluate == "ema":
        raise InputError(
            'evaluate="ema" evaluates the moving average in place of the model: evaluate_average has nothing to add'
        )
    check_device(device)
    if precision == "bfloat16":
        check_bfloat16(device)


def default_evaluate_every(iterations: int) -> int:
    """So that a run is evaluated about 20 times."""
    return -(-iterations // DEFAULT_EVALUATIONS)


def participation_of(
    given: float | int | Participation, window: int | None
) -> Participation:
    """What `participation` and `window` mean together; the number 1 may be meant as one client or as all of them."""
    if isinstance(given, Participation):
        if window is not None:
            raise InputError("window is given twice: put it into the Participation")
        return given
    if isinstance(given, float):
        return Participation(fraction=given, window=window)
    is_number = isinstance(given, numbers.Real) and not isinstance(given, bool)
    if is_number and given == 1:
        raise InputError(
            f"participation = {given} may mean one client or all of them: write "
            f"participation=fedlama.Participation(clients=1) or participation=fedlama.Participation(fraction=1.0)"
        )
    return Participation(clients=given, window=window)
