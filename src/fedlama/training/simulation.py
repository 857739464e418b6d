"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

from torch import nn

from fedlama.base import MAX_SEED, InputError, RunError, check_whole
from fedlama.compress import Channel, Codec, ErrorFeedback
from fedlama.core import Layout, Policy
from fedlama.data import Batches, Dataset, Natural, Partition
from fedlama.local import LocalRule
from fedlama.processes.devices import as_current, backend_for, check_device, check_workers, is_on_gpu
from fedlama.processes.memory import explain_out_of_memory
from fedlama.processes.workers import run_workers
from fedlama.processes.world import World, has_process_group, launched_by_torchrun, torchrun_world
from fedlama.rows import Binding, ClientStore, check_dtypes, counter_width, describe
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
from fedlama.training.checkpoint import Checkpoint, Checkpointing, Shapes
from fedlama.training.evaluation import Loss, Metric
from fedlama.training.faults import Faults
from fedlama.training.loop import Emit, Federation
from fedlama.training.memory import check_memory, demand_of, fits
from fedlama.training.modules import build, torch_settings
from fedlama.training.participation import Participation
from fedlama.training.records import LayerSummary, Record, Result
from fedlama.training.resuming import check_resumable
from fedlama.training.trainers import (
    EXECUTIONS,
    PRECISIONS,
    OneByOneTrainer,
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
        job = replace(job, uplink=_channel(uplink, layout, seed), downlink=_channel_down(downlink, layout, seed))
        setup = Setup(job, module, layout, _is_stacked(execution, module, layout, job), device, checkpointing)
        if not on_gpu:
            _check_memory(setup, workers)
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
            end = _run(setup, store, workers, take)
        if end.step < iterations:
            raise RunError(_why_stopped(end, job))
        return _result(setup, end, records, time.perf_counter() - started)


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


def _participation(given: float | int | Participation, window: int | None) -> Participation:
    if not isinstance(given, Participation):
        return Participation(given, window)
    if window is not None:
        raise InputError("window is given twice: put it into the Participation")
    return given


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
    named = [f"client {entry['client']}: {entry['reason']}" for entry in excluded[:MAX_NAMED]]
    if len(excluded) > MAX_NAMED:
        named.append("…")
    return (
        f"{where}: fewer than faults.min_clients = {job.faults.min_clients} clients were left in round "
        f"{end.state.round + 1}{tried} ({'; '.join(named)}); --resume continues from there with new clients"
    )


def _result(setup: Setup, end: Position, records: list[Record], seconds: float) -> Result:
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
        loss=last.test_loss,
        cost=ledger.relative_cost(end.step, job.policy.base_interval),
        uplink_bytes=ledger.uplink_bytes,
        downlink_bytes=ledger.downlink_bytes,
        statistics_bytes=ledger.statistics_uplink,
        iterations=job.iterations,
        seed=job.seed,
        seconds=seconds,
        uplink_share=_uplink_share(setup, end),
        codec=str(job.uplink.codec) if job.uplink else "none",
        server=str(job.server),
        local=str(job.local),
        layers=layers,
        records=records,
        model=setup.module,
    )


def _uplink_share(setup: Setup, end: Position) -> float:
    """Uplink bytes divided by those of uncompressed FedAvg at the base interval with as many clients."""
    job = setup.job
    ledger = end.server.ledger
    averages = -(-end.step // job.policy.base_interval)
    clients = job.participation.count(len(job.shards))
    return ledger.uplink_bytes / (averages * clients * ledger.plain_message().total)
