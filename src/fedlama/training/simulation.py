"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedlama.core import InputError, Layout, Policy, RunError, check_whole
from fedlama.data import Batches, Dataset, Natural, Partition, Shards
from fedlama.local import SGD
from fedlama.rows import Binding, check_dtypes, counter_width, describe
from fedlama.training.checkpoint import Checkpoint, Checkpointing
from fedlama.training.faults import Faults
from fedlama.training.loop import Federation
from fedlama.training.memory import check_memory, demand_of, telling_of_memory
from fedlama.training.participation import Participation
from fedlama.training.records import LayerSummary, Record, Result
from fedlama.training.stacked import EXECUTIONS, StackedTrainer, can_stack, suits_stacking
from fedlama.training.trainer import PRECISIONS, Loss, Metric, Trainer, accuracy, build, torch_settings
from fedlama.training.values import Job, Position
from fedlama.training.workers import run_workers
from fedlama.training.world import World, backend_for, has_process_group, launched_by_torchrun, torchrun_world

WEIGHTINGS = ("uniform", "samples")
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
    _check_kinds(data, policy, local, partition)
    check_whole("seed", seed, least=0)
    _check_numbers(iterations=iterations, workers=workers, evaluate_every=evaluate_every)
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    if weights not in WEIGHTINGS:
        raise InputError(f"weights must be one of {', '.join(WEIGHTINGS)}, not {weights!r}")
    if not isinstance(participation, Participation):
        participation = Participation(participation, window)
    elif window is not None:
        raise InputError("window is given twice: put it into the Participation")
    participation.window_steps(policy)
    _check_device(device)
    shards = (partition or Natural()).assign(data, seed)
    _check_faults(faults, participation.count(len(shards)))
    loss, metric = _task(data, loss, metric)
    every = evaluate_every or default_evaluate_every(iterations)
    job = Job(policy, participation, weights, iterations, every, seed, precision, data, shards, loss, metric, faults)
    started = time.perf_counter()
    uses_gpu = workers == 1 and World().device(device).type == "cuda"
    with torch_settings(uses_gpu):
        module = build(model, seed)
        check_dtypes(module)
        _check_outputs(module, data, loss, metric)
        _check_single_samples(module, data, shards, local.batch_size)
        layout = describe(module, layers, adaptive)
        stacked = _stacked(execution, module, layout, job)
        if World().device(device).type == "cpu":
            saves = checkpointing is not None
            check_memory(demand_of(job, layout, local, workers=workers, stacked=stacked, saves=saves))
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


def _check_faults(faults: Faults | None, active: int) -> None:
    if faults is None:
        return
    if not isinstance(faults, Faults):
        raise InputError(f"faults must be made with fedlama.Faults(…), not {type(faults).__name__}")
    if faults.min_clients > active:
        raise InputError(f"faults.min_clients is {faults.min_clients}, but only {active} clients train at a time")


def _why_stopped(end: Position, job: Job) -> str:
    where = f"stopped at step {end.state.step} of {job.iterations}"
    if end.discarded is None:
        return f"{where}, as asked; --resume continues from there"
    assert job.faults, "only faults make a round one to be repeated"
    tried = f" at {end.attempt} attempts" if end.attempt > 1 else ""
    return (
        f"{where}: fewer than faults.min_clients = {job.faults.min_clients} clients were left in round "
        f"{end.state.round + 1}{tried}; --resume continues from there with new clients"
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
        alone = Trainer(binding, batches, local, job.loss, job.seed, job.precision)
        federation = Federation(
            on_device, binding, StackedTrainer(binding, batches, local) if stacked else alone, world
        )
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


def _check_kinds(data: Dataset, policy: Policy, local: SGD, partition: Partition | None) -> None:
    if partition is not None and not hasattr(partition, "assign"):
        raise InputError(f"partition must be made with fedlama.IID(…) or fedlama.Dirichlet(…), not {partition!r}")
    wanted = (
        ("data", data, Dataset, "fedlama.data.arrays(…) or fedlama.data.load(…)"),
        ("policy", policy, Policy, "fedlama.FedLAMA(…) or fedlama.FedAvg(…)"),
        ("local", local, SGD, "fedlama.SGD(…)"),
    )
    for name, value, kind, example in wanted:
        if not isinstance(value, kind):
            raise InputError(f"{name} must be made with {example}, not {type(value).__name__}")


def _check_numbers(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None:
            check_whole(name, value, least=1)


def _check_device(name: str) -> None:
    try:
        kind = torch.device("cpu" if name == "auto" else name).type
    except RuntimeError:
        raise InputError(f"device {name!r} is not one that torch knows: use auto, cpu or cuda") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r}: torch finds no CUDA device on this machine; use auto or cpu")


def _task(data: Dataset, loss: Loss | None, metric: Metric | None) -> tuple[Loss, Metric | None]:
    """Classification unless the user says otherwise."""
    classifies = not data.y_train.is_floating_point()
    if loss is None and not classifies:
        raise InputError(
            "the targets are not whole numbers, so there is no default loss: "
            "pass loss= (such as torch.nn.functional.mse_loss) and, if you like, metric="
        )
    if metric is None and classifies and data.y_train.dim() == 1:
        metric = accuracy
    return loss or nn.functional.cross_entropy, metric


@torch.no_grad()
def _check_outputs(module: nn.Module, data: Dataset, loss: Loss, metric: Metric | None) -> None:
    """One forward pass before anything is spent: shapes that do not fit are the user's input, not our failure."""
    expected = (RuntimeError, ValueError, TypeError, IndexError, AttributeError)
    module.eval()
    try:
        outputs = module(data.inputs(data.x_train[:2]))
    except expected as error:
        shape = tuple(data.x_train.shape[1:])
        raise InputError(f"the model does not take {data.name}'s samples of shape {shape}: {error}") from error
    finally:
        module.train()
    if loss is nn.functional.cross_entropy and isinstance(outputs, Tensor) and outputs.dim() >= 2:
        _check_labels(data, outputs.shape[1])
    try:
        values = {
            name: measure(outputs, data.y_train[:2])
            for name, measure in (("loss", loss), ("metric", metric))
            if measure
        }
    except expected as error:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(
            f"the loss or metric does not take the model's output ({shape}) with targets of shape "
            f"{tuple(data.y_train[:2].shape)}: {error}"
        ) from error
    for name, value in values.items():
        if isinstance(value, Tensor) and value.numel() != 1:
            raise InputError(f"the {name} must be one number, not a tensor of shape {tuple(value.shape)}")


@torch.no_grad()
def _check_single_samples(module: nn.Module, data: Dataset, shards: Shards, batch_size: int) -> None:
    """BatchNorm cannot train on one value a channel, and the last batch of an epoch may hold a single sample."""
    if not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules()):
        return
    single = (shards.sizes % batch_size == 1).nonzero()
    if not len(single):
        return
    try:
        deepcopy(module)(data.inputs(data.x_train[:1]))
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        client = int(single[0])
        raise InputError(
            f"client {client} has {int(shards.sizes[client])} samples, so batches of {batch_size} leave one over, and "
            f"this model's BatchNorm cannot train on a single sample: choose another local.batch_size"
        ) from None


def _check_labels(data: Dataset, classes: int) -> None:
    for name, targets in (("y_train", data.y_train), ("y_test", data.y_test)):
        if int(targets.max()) >= classes:
            raise InputError(
                f"{data.name}'s {name} holds label {int(targets.max())}, outside the model's {classes} classes "
                f"(labels are counted from 0)"
            )


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
