"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

from torch import nn

from fedlama.base import MAX_SEED, InputError, RunError, check_whole
from fedlama.compress import Channel, Codec, ErrorFeedback
from fedlama.core import Layout, Policy
from fedlama.data import Batches, Dataset, Partition, default_partition
from fedlama.local import LocalRule
from fedlama.processes.devices import as_current, backend_for, check_device, check_workers, is_on_gpu
from fedlama.processes.memory import explain_out_of_memory
from fedlama.processes.workers import run_workers
from fedlama.processes.world import World, has_process_group, launched_by_torchrun, torchrun_world
from fedlama.rows import Binding, ClientStore, Grouping, check_dtypes, counter_width, describe
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
from fedlama.training.checkpoint import Checkpoint, Checkpointing, Shapes
from fedlama.training.evaluation import ClientSamples, Loss, Metric, MetricFunction
from fedlama.training.faults import Faults
from fedlama.training.loop import Emit, Federation
from fedlama.training.memory import check_memory, demand_of, fits
from fedlama.training.modules import build, torch_settings
from fedlama.training.participation import Participation
from fedlama.training.records import ClientScores, LayerSummary, Record, Result, fedavg_at
from fedlama.training.resuming import check_resumable
from fedlama.training.trainers import (
    EXECUTIONS,
    PRECISIONS,
    Execution,
    OneByOneTrainer,
    Precision,
    StackedTrainer,
    Trainer,
    can_stack,
    suits_stacking,
)
from fedlama.training.values import Job, Position

Weighting = Literal["uniform", "samples"]  # of a client in an average
Evaluated = Literal["model", "ema"]  # ema: the exponential moving average of the server's model
WEIGHTINGS = get_args(Weighting)
EVALUATED = get_args(Evaluated)
MAX_NAMED = 4  # clients in a sentence
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
    average_steps: int = 120,
    device: str = "auto",
    execution: Execution = "auto",
    precision: Precision = "float32",
    on_record: Callable[[Record], None] | None = None,
    checkpointing: Checkpointing | None = None,
) -> Result:
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
        average_steps=average_steps,
        device=device,
        execution=execution,
        precision=precision,
    )
    check_numbers(workers=workers)
    participation = participation_of(participation, window)
    participation.window_steps(policy)
    if not launched_by_torchrun():
        check_workers(device, workers)
    shards = (partition or default_partition(data)).assign(data, seed)  # shards that were dealt before give themselves
    check_faults(faults, participation.count(len(shards)))
    loss, metric = task_of(data, loss, metric)
    client_samples = None
    if evaluate_clients:
        if metric is None:
            raise InputError("evaluate_clients needs a metric, and this task has none: pass metric=")
        client_samples = ClientSamples.choose(data, shards)
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
        policy.start(layout.layers)  # refuses a policy that does not fit this model before anything is started
        job = replace(job, uplink=_channel(uplink, layout, seed), downlink=_channel_down(downlink, layout, seed))
        setup = Setup(job, module, layout, _is_stacked(execution, module, layout, job), device, checkpointing)
        if not on_gpu:
            _check_memory(setup, workers)
        if checkpointing and checkpointing.find:
            checkpointing.resume, checkpointing.earlier = checkpointing.find(setup.round_of)
        records = list(checkpointing.earlier) if checkpointing else []
        client_scores: ClientScores | None = None

        def take(item: Record | Checkpoint) -> None:
            nonlocal client_scores
            if isinstance(item, Checkpoint):
                assert checkpointing, "nobody asked for checkpoints"
                checkpointing.on_checkpoint(item.encode(), item.state)
                return
            client_scores = item.clients
            if item.clients is not None:
                item = replace(item, clients=item.clients.without_scores())
            records.append(item)
            if on_record:
                on_record(item)

        with setup.store() as store:
            end = _run(setup, store, workers, take)
        if end.step < iterations:
            raise RunError(_why_stopped(end, job))
        return _result(setup, end, records, client_scores, time.perf_counter() - started)


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
    average_steps: int,
    device: str,
    execution: Execution,
    precision: Precision,
) -> None:
    """Raise InputError unless each of these arguments of `simulate` is allowed by itself."""
    check_codecs(uplink=uplink, downlink=downlink)
    check_whole("seed", seed, minimum=0, maximum=MAX_SEED)
    check_numbers(iterations=iterations, evaluate_every=evaluate_every, average_steps=average_steps)
    check_choice("precision", precision, PRECISIONS)
    check_choice("weights", weights, WEIGHTINGS)
    check_choice("execution", execution, EXECUTIONS)
    check_choice("evaluate", evaluate, EVALUATED)
    check_flag("evaluate_clients", evaluate_clients)
    check_device(device)


@dataclass(frozen=True)
class Setup:
    """A job with the module that it trains, and how it is to be run here."""

    job: Job
    module: nn.Module
    layout: Layout
    stacked: bool
    device: str
    checkpointing: Checkpointing | None

    @property
    def shapes(self) -> Shapes:
        """What a checkpoint of this job must fit."""
        job = self.job
        outliving = [slot.name for slot in job.client_slots if slot.lifetime == "run"]
        return Shapes(
            width=self.layout.width,
            counter_width=counter_width(self.module),
            server_slots=tuple(slot.name for slot in job.make_server(self.layout).slots),
            cohort_slots=tuple(slot.name for slot in job.client_slots),
            seen_slots=tuple(outliving),
            cohort=job.participation.count(len(job.shards)),
            clients=len(job.shards),
        )

    def restored(self, content: bytes) -> Checkpoint:
        """A checkpoint from its file's content; InputError if the run cannot go on from it."""
        saved = Checkpoint.decode(content, self.shapes)
        check_resumable(saved, self.job, self.layout)
        return saved

    def round_of(self, content: bytes) -> int:
        """The round after which a checkpoint was saved; InputError if the run cannot go on from it."""
        return self.restored(content).state.round

    @contextmanager
    def store(self) -> Iterator[ClientStore | None]:
        """Where slots that outlive a window are kept; made before processes are forked, so that they share it."""
        outliving = [slot for slot in self.job.client_slots if slot.lifetime == "run"]
        if not outliving:
            yield None
            return
        with closing(ClientStore(outliving, len(self.job.shards), self.layout.width)) as store:
            yield store

    def trainer(self, binding: Binding, batches: Batches) -> Trainer:
        """Whoever takes the local steps in one process."""
        job = self.job
        if self.stacked:
            return StackedTrainer(binding, batches, job.local)
        return OneByOneTrainer(binding, batches, job.local, job.loss, job.seed, job.precision)


def default_evaluate_every(iterations: int) -> int:
    """So that a run is evaluated about 20 times."""
    return -(-iterations // DEFAULT_EVALUATIONS)


def participation_of(given: float | int | Participation, window: int | None) -> Participation:
    """What `participation` and `window` mean together; the number 1 may be meant as one client or as all of them."""
    if isinstance(given, Participation):
        if window is not None:
            raise InputError("window is given twice: put it into the Participation")
        return given
    if isinstance(given, float):
        return Participation(fraction=given, window=window)
    if not isinstance(given, bool) and isinstance(given, numbers.Real) and given == 1:
        raise InputError(
            f"participation = {given} may mean one client or all of them: write "
            f"participation=fedlama.Participation(clients=1) or participation=fedlama.Participation(fraction=1.0)"
        )
    return Participation(clients=given, window=window)


def _channel(codec: Codec | None, layout: Layout, seed: int) -> Channel | None:
    if codec is None:
        return None
    return Channel(codec, layout, seed=seed, direction="uplink")


def _channel_down(codec: Codec | None, layout: Layout, seed: int) -> Channel | None:
    """The server stays as long as the run does, so what its code leaves out is never forgotten."""
    if codec is None:
        return None
    if not codec.slots:
        codec = ErrorFeedback(codec, lifetime="run")
    elif isinstance(codec, ErrorFeedback) and codec.lifetime == "window":
        if codec.profile is not None or codec.gain:
            raise InputError("downlink takes no profile and no gain: the server loses nothing when a window ends")
        codec = replace(codec, lifetime="run")
    return Channel(codec, layout, seed=seed, direction="downlink")


def _check_memory(setup: Setup, workers: int) -> None:
    """Refuse a run that will not fit into memory."""
    checkpointing = setup.checkpointing
    demand = demand_of(setup.job, setup.layout, workers=workers, stacked=setup.stacked, saves=checkpointing is not None)
    if checkpointing and not fits(demand):
        # Between windows no slots of a cohort are to be saved: a run should not fail for its checkpoints.
        checkpointing.control.between_windows = True
        demand = replace(demand, saved_clients=0)
    check_memory(demand)


def _run(setup: Setup, store: ClientStore | None, workers: int, take: Emit) -> Position:
    """The loop, in this process, in worker processes, or as one process of a group that torchrun started."""
    checkpointing = setup.checkpointing

    @explain_out_of_memory()
    def work(world: World, emit: Emit) -> Position:
        device = world.device(setup.device)
        binding = Binding(setup.module.to(device), setup.layout)
        job = replace(setup.job, data=setup.job.data.to(device))
        batches = Batches(job.data, job.shards, job.local.batch_size, job.seed)
        federation = Federation(job, binding, setup.trainer(binding, batches), world, store)
        with as_current(device):
            if checkpointing is None:
                return federation.run(emit).on_cpu()
            saved = world.from_first(checkpointing.resume)
            resume = setup.restored(saved) if saved else None
            return federation.run(emit, checkpointing.control, resume).on_cpu()

    if launched_by_torchrun():
        with torchrun_world(backend_for(setup.device)) as world:
            return work(world, take)
    if workers == 1:
        return work(World(), take)
    if has_process_group():
        raise InputError("this process already has a process group: use workers=1, or start the program with torchrun")

    def work_and_send(world: World, emit: Emit) -> Position:
        return work(world, emit).as_arrays()

    return run_workers(workers, work_and_send, take, backend_for(setup.device)).on_cpu()


def _is_stacked(execution: str, module: nn.Module, layout: Layout, job: Job) -> bool:
    if job.local.steps is not None:
        if execution == "stacked":
            raise InputError("execution = 'stacked' does not fit this training: clients take unequal numbers of steps")
        return False
    if execution == "auto":
        return suits_stacking(module, layout, job.data, job.loss, job.precision)
    reason = can_stack(module, job.data, job.loss, job.precision)
    if execution == "stacked" and reason:
        raise InputError(f"execution = 'stacked' does not fit this training: {reason}")
    return execution == "stacked"


def _why_stopped(end: Position, job: Job) -> str:
    where = f"stopped at step {end.step} of {job.iterations}"
    if end.discarded is None:
        return f"{where}, as asked; --resume continues from there"
    assert job.faults, "only faults make a round one to be repeated"
    tried = f" at {end.attempt} attempts" if end.attempt > 1 else ""
    excluded = [entry for entry in end.discarded.excluded if entry["attempt"] == end.attempt]
    named = [f"{job.shards.name_of(entry['client'])}: {entry['reason']}" for entry in excluded[:MAX_NAMED]]
    if len(excluded) > MAX_NAMED:
        named.append("…")
    return (
        f"{where}: fewer than faults.min_clients = {job.faults.min_clients} clients were left in round "
        f"{end.state.round + 1}{tried} ({'; '.join(named)}); --resume continues from there with new clients"
    )


def _result(
    setup: Setup, end: Position, records: list[Record], client_scores: ClientScores | None, seconds: float
) -> Result:
    """What came of a run that reached its last step, with the global weights in the module."""
    ledger = end.server.ledger
    binding = Binding(setup.module.to("cpu"), setup.layout)
    binding.point_at(end.server.evaluated)
    binding.load_counters(end.counters)
    binding.release()
    layers: list[LayerSummary] = []
    for index, layer in enumerate(setup.layout.layers):
        layers.append(
            LayerSummary(
                name=layer.name,
                size=layer.size,
                adaptive=layer.adaptive,
                aggregations=ledger.aggregations[index],
                interval=end.state.intervals[index],
                uplink_bytes=ledger.layer_uplink[index],
                downlink_bytes=ledger.layer_downlink[index],
            )
        )
    job = setup.job
    last = records[-1]
    assert last.test_loss is not None, "the last round is always evaluated"
    return Result(
        accuracy=last.accuracy,
        metric=job.metric.measure if job.metric else None,
        metrics=dict(last.metrics),
        clients=client_scores,
        loss=last.test_loss,
        cost=ledger.relative_cost(end.step, job.policy.base_interval),
        uplink_bytes=ledger.uplink_bytes,
        downlink_bytes=ledger.downlink_bytes,
        statistics_bytes=ledger.statistics_uplink,
        iterations=job.iterations,
        seed=job.seed,
        seconds=seconds,
        uplink_share=job.uplink_share(ledger, end.step),
        codec=str(job.uplink.codec) if job.uplink else "none",
        server=str(job.server),
        local=str(job.local),
        policy=str(job.policy),
        cost_of=fedavg_at(job.policy.base_interval),
        layers=layers,
        records=records,
        model=setup.module,
        preparation=job.data.preparation,
        is_classifier=job.data.classes is not None,
        client_names=job.shards.names,
    )
