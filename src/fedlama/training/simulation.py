"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import nn

from fedlama.base import InputError, RunError, check_whole
from fedlama.core import Layout, Policy
from fedlama.data import Batches, Dataset, Natural, Partition
from fedlama.local import SGD
from fedlama.processes.memory import telling_of_memory
from fedlama.processes.workers import run_workers
from fedlama.processes.world import World, backend_for, has_process_group, launched_by_torchrun, torchrun_world
from fedlama.rows import Binding, check_dtypes, counter_width, describe
from fedlama.training.arguments import (
    check_device,
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
from fedlama.training.loop import Federation
from fedlama.training.memory import check_memory, demand_of, fits
from fedlama.training.modules import build, torch_settings
from fedlama.training.participation import Participation
from fedlama.training.records import LayerSummary, Record, Result
from fedlama.training.trainers import (
    EXECUTIONS,
    PRECISIONS,
    OneByOneTrainer,
    StackedTrainer,
    can_stack,
    suits_stacking,
)
from fedlama.training.values import Job, Position

WEIGHTINGS = ("uniform", "samples")
MOST_NAMED = 4  # clients in a sentence
DEFAULT_EVALUATIONS = 20


def simulate(
    model: Callable[[], nn.Module],
    data: Dataset,
    *,
    policy: Policy,
    local: SGD,
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
    device: str = "auto",
    execution: str = "auto",
    precision: str = "float32",
    on_record: Callable[[Record], None] | None = None,
    checkpointing: Checkpointing | None = None,
) -> Result:
    """Train a federation and account for every byte.

    `model` builds any nn.Module; it is called once. `partition` deals the samples to clients (default: the data's own
    client ids). `participation` is a fraction (float) or number (int) of clients that train at a time, drawn anew every
    `window` steps (default: one cycle of the policy). `workers` processes share the work. `execution` is how a process
    trains its clients: one by one, or small models in stacks. `precision="bfloat16"` computes local steps under
    autocast; weights, averages and evaluation stay float32. `faults` lets clients fail; without it, one whose loss or
    weights are not finite ends the run. The same arguments give the same bits on the same
    machine, whatever the number of workers.
    """
    check_kinds(data, policy, local, partition)
    check_whole("seed", seed, least=0)
    check_numbers(iterations=iterations, workers=workers, evaluate_every=evaluate_every)
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    if weights not in WEIGHTINGS:
        raise InputError(f"weights must be one of {', '.join(WEIGHTINGS)}, not {weights!r}")
    if not isinstance(participation, Participation):
        participation = Participation(participation, window)
    elif window is not None:
        raise InputError("window is given twice: put it into the Participation")
    participation.window_steps(policy)
    check_device(device)
    shards = (partition or Natural()).assign(data, seed)
    check_faults(faults, participation.count(len(shards)))
    loss, metric = task_of(data, loss, metric)
    every = evaluate_every or default_evaluate_every(iterations)
    job = Job(policy, participation, weights, iterations, every, seed, precision, data, shards, loss, metric, faults)
    started = time.perf_counter()
    uses_gpu = workers == 1 and World().device(device).type == "cuda"
    with torch_settings(uses_gpu):
        module = build(model, seed)
        check_dtypes(module)
        check_outputs(module, data, loss, metric)
        check_single_samples(module, data, shards, local.batch_size)
        layout = describe(module, layers, adaptive)
        stacked = _stacked(execution, module, layout, job)
        if World().device(device).type == "cpu":
            demand = demand_of(job, layout, local, workers=workers, stacked=stacked, saves=checkpointing is not None)
            if checkpointing and not fits(demand):
                # Between windows there is no momentum to save: a run should not fail for its checkpoints
                checkpointing.control.between_windows = True
                demand = replace(demand, saved_clients=0)
            check_memory(demand)
        records = list(checkpointing.earlier) if checkpointing else []

        def take(item: Record | Checkpoint) -> None:
            if isinstance(item, Checkpoint):
                assert checkpointing, "nobody asked for checkpoints"
                checkpointing.on_checkpoint(item.encode(), item.state)
                return
            records.append(item)
            if on_record:
                on_record(item)

        end = _run(job, module, layout, local, workers, device, stacked, checkpointing, take)
        if end.state.step < iterations:
            raise RunError(_why_stopped(end, job))
        return _result(job, module, layout, end, records, time.perf_counter() - started)


def _why_stopped(end: Position, job: Job) -> str:
    where = f"stopped at step {end.state.step} of {job.iterations}"
    if end.discarded is None:
        return f"{where}, as asked; --resume continues from there"
    assert job.faults, "only faults make a round one to be repeated"
    tried = f" at {end.attempt} attempts" if end.attempt > 1 else ""
    left_out = [one for one in end.discarded.excluded if one["attempt"] == end.attempt]
    who = "; ".join(f"client {one['client']}: {one['reason']}" for one in left_out[:MOST_NAMED])
    return (
        f"{where}: fewer than faults.min_clients = {job.faults.min_clients} clients were left in round "
        f"{end.state.round + 1}{tried} ({who}{'; …' if len(left_out) > MOST_NAMED else ''}); --resume continues from "
        f"there with new clients"
    )


def default_evaluate_every(iterations: int) -> int:
    """So that a run is evaluated about 20 times."""
    return -(-iterations // DEFAULT_EVALUATIONS)


def _run(
    job: Job,
    module: nn.Module,
    layout: Layout,
    local: SGD,
    workers: int,
    device: str,
    stacked: bool,
    checkpointing: Checkpointing | None,
    take: Callable[[Record | Checkpoint], None],
) -> Position:
    """The loop, in this process, in worker processes, or as one process of a group that torchrun started."""
    shapes = {
        "width": layout.width,
        "counter_width": counter_width(module),
        "memory_shape": (local.memory_rows, layout.parameter_width),
    }

    @telling_of_memory()
    def work(world: World, emit: Callable[[Record | Checkpoint], None]) -> Position:
        here = world.device(device)
        binding = Binding(module.to(here), layout)
        on_device = replace(job, data=job.data.to(here))
        batches = Batches(on_device.data, job.shards, local.batch_size, job.seed)
        if stacked:
            trainer = StackedTrainer(binding, batches, local)
        else:
            trainer = OneByOneTrainer(binding, batches, local, job.loss, job.seed, job.precision)
        federation = Federation(on_device, binding, trainer, world)
        saved = world.from_first(checkpointing.resume) if checkpointing else b""
        resume = Checkpoint.decode(saved, **shapes) if saved else None
        return federation.run(emit, checkpointing.control if checkpointing else None, resume).to_cpu()

    if launched_by_torchrun():
        with torchrun_world(backend_for(device)) as world:
            return work(world, take)
    if workers == 1:
        return work(World(), take)
    if has_process_group():
        raise InputError("this process already has a process group: use workers=1, or start the program with torchrun")
    return run_workers(workers, lambda world, emit: work(world, emit).as_arrays(), take, backend_for(device)).to_cpu()


def _stacked(execution: str, module: nn.Module, layout: Layout, job: Job) -> bool:
    if execution not in EXECUTIONS:
        raise InputError(f"execution must be one of {', '.join(EXECUTIONS)}, not {execution!r}")
    if execution == "auto":
        return suits_stacking(module, layout, job.data, job.loss, job.precision)
    reason = can_stack(module, job.data, job.loss, job.precision)
    if execution == "stacked" and reason:
        raise InputError(f"execution = 'stacked' does not fit this training: {reason}")
    return execution == "stacked"


def _result(
    job: Job, module: nn.Module, layout: Layout, end: Position, records: list[Record], seconds: float
) -> Result:
    ledger, state = end.ledger, end.state
    binding = Binding(module.to("cpu"), layout)
    binding.point_at(end.row)
    binding.load_counters(end.counters)
    binding.release()
    last = records[-1]
    assert last.test_loss is not None, "the last round is always evaluated"
    return Result(
        accuracy=last.accuracy,
        loss=last.test_loss,
        cost=ledger.relative_cost(state.step, job.policy.base_interval),
        uplink_bytes=ledger.uplink_bytes,
        downlink_bytes=ledger.downlink_bytes,
        statistics_bytes=ledger.statistics_uplink,
        iterations=job.iterations,
        seed=job.seed,
        seconds=seconds,
        layers=[
            LayerSummary(
                name=layer.name,
                size=layer.size,
                adaptive=layer.adaptive,
                aggregations=ledger.aggregations[index],
                interval=state.intervals[index],
                uplink_bytes=ledger.layer_uplink[index],
                downlink_bytes=ledger.layer_downlink[index],
            )
            for index, layer in enumerate(layout.layers)
        ],
        records=records,
        model=module,
    )
