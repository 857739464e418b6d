"""`simulate`: check what the user gave, set the loop up, run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from fedlama.core import InputError, Policy
from fedlama.data import Batches, Dataset, Natural, Partition
from fedlama.local import SGD
from fedlama.rows import Binding, describe
from fedlama.training.loop import Federation, Job, Position
from fedlama.training.participation import Participation
from fedlama.training.records import LayerSummary, Record, Result
from fedlama.training.trainer import Loss, Metric, Trainer, accuracy, build, torch_settings
from fedlama.training.world import World

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
    window: int | None = None,
    weights: str = "uniform",
    layers: str = "tensor",
    adaptive: Sequence[str] | None = None,
    loss: Loss | None = None,
    metric: Metric | None = None,
    evaluate_every: int | None = None,
    device: str = "auto",
    on_record: Callable[[Record], None] | None = None,
) -> Result:
    """Train a federation and account for every byte.

    `model` builds any nn.Module; it is called once. `partition` deals the samples to clients (default: the data's own
    client ids). `participation` is a fraction (float) or number (int) of clients that train at a time, drawn anew every
    `window` steps (default: one cycle of the policy). The same arguments give the same bits on the same machine.
    """
    if iterations < 1:
        raise InputError(f"train.iterations must be at least 1, not {iterations}")
    if weights not in WEIGHTINGS:
        raise InputError(f"weights must be one of {', '.join(WEIGHTINGS)}, not {weights!r}")
    if evaluate_every is not None and evaluate_every < 1:
        raise InputError(f"train.evaluate_every must be at least 1, not {evaluate_every}")
    if not isinstance(participation, Participation):
        participation = Participation(participation, window)
    participation.window_steps(policy)
    chosen_device = _device(device)
    shards = (partition or Natural()).assign(data, seed)
    participation.count(len(shards))
    loss, metric = _task(data, loss, metric)
    started = time.perf_counter()
    with torch_settings(chosen_device):
        module = build(model, seed, chosen_device)
        data = data.to(chosen_device)
        _check_outputs(module, data, loss)
        binding = Binding(module, describe(module, layers, adaptive))
        trainer = Trainer(binding, Batches(data, shards, local.batch_size, seed), local, loss, seed)
        every = evaluate_every or max(1, iterations // DEFAULT_EVALUATIONS)
        job = Job(policy, participation, weights, iterations, every, seed, data, shards, loss, metric)
        records: list[Record] = []

        def take(record: Record) -> None:
            records.append(record)
            if on_record:
                on_record(record)

        position = Federation(job, binding, trainer, World()).run(take)
        return _result(job, binding, position, records, time.perf_counter() - started)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error


def _task(data: Dataset, loss: Loss | None, metric: Metric | None) -> tuple[Loss, Metric | None]:
    """Classification unless the user says otherwise."""
    classifies = not data.y_train.is_floating_point()
    if loss is None and not classifies:
        raise InputError(
            "the targets are not whole numbers, so there is no default loss: "
            "pass loss= (such as torch.nn.functional.mse_loss) and, if you like, metric="
        )
    if metric is None and loss is None:
        metric = accuracy
    return loss or nn.functional.cross_entropy, metric


@torch.no_grad()
def _check_outputs(module: nn.Module, data: Dataset, loss: Loss) -> None:
    """One forward pass before anything is spent: shapes that do not fit are the user's input, not our failure."""
    module.eval()
    try:
        outputs = module(data.inputs(data.x_train[:2]))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        shape = tuple(data.x_train.shape[1:])
        raise InputError(f"the model does not take {data.name}'s samples of shape {shape}: {error}") from error
    finally:
        module.train()
    if loss is nn.functional.cross_entropy and outputs.dim() >= 2:
        largest = int(max(data.y_train.max(), data.y_test.max()))
        if largest >= outputs.shape[1]:
            raise InputError(
                f"{data.name} holds label {largest}, outside the model's {outputs.shape[1]} classes "
                f"(labels are counted from 0)"
            )


def _result(job: Job, binding: Binding, position: Position, records: list[Record], seconds: float) -> Result:
    ledger, state = position.ledger, position.state
    binding.point_at(position.row)
    binding.load_counters(position.counters)
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
            for index, layer in enumerate(binding.layout.layers)
        ],
        records=records,
        model=binding.module,
    )
