"""From a configuration to a finished run directory."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy
import torch

from fedlama.core import InputError
from fedlama.data import Dataset, Dirichlet, load
from fedlama.experiment.config import Config
from fedlama.experiment.presets import default_model, model_builder
from fedlama.experiment.run_directory import RunDirectory
from fedlama.experiment.tensorboard import tensorboard_writer
from fedlama.training import Record, Result, simulate
from fedlama.training.simulation import DEFAULT_EVALUATIONS
from fedlama.training.world import torchrun_rank
from fedlama.version import __version__

Observer = Callable[[Record], None]


@cache
def load_data(name: str) -> Dataset:
    """A data set by name or path, read once a process."""
    try:
        return load(name)
    except InputError as error:
        raise InputError(f"data.name = {name!r}: {error}") from None


def resolve(config: Config) -> Config:
    """The same configuration with every default that depends on the data or the policy written out."""
    data = load_data(config.data.name)
    natural = data.clients is not None
    partition = config.partition.build(natural)
    filled = {"kind": config.partition.resolved_kind(natural), "clients": len(partition.assign(data, config.seed))}
    if isinstance(partition, Dirichlet):
        filled |= {"alpha": partition.alpha, "min_samples": partition.min_samples}
    policy = config.policy.build()
    every = config.train.evaluate_every or max(1, config.train.iterations // DEFAULT_EVALUATIONS)
    unused = {"increase_factor": 1, "rule": "crossing", "warmup_rounds": 0} if config.policy.kind == "fedavg" else {}
    update = {
        "policy": config.policy.model_copy(update=unused),
        "model": config.model.model_copy(update={"name": config.model.name or default_model(data)}),
        "partition": config.partition.model_copy(update=filled),
        "participation": config.participation.model_copy(
            update={"window": config.participation.build().window_steps(policy)}
        ),
        "train": config.train.model_copy(update={"evaluate_every": every}),
        "versions": versions(),
    }
    return config.model_copy(update=update)


def versions() -> dict[str, str]:
    """What a result depends on beside its configuration."""
    return {
        "fedlama": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "machine": platform.machine(),
    }


def execute(
    config: Config,
    out: Path,
    observers: Sequence[Observer] = (),
    *,
    workers: int | None = None,
    replace: bool = False,
) -> Result:
    """Run a configuration into a directory; observers see each record after it is on disk.

    `workers` processes share the work (default: one a core). Of a group that torchrun started, rank 0 writes.
    """
    config = resolve(config)
    data = load_data(config.data.name)
    builder = model_builder(config.model.name or default_model(data), data)
    directory = RunDirectory(out, config, replace=replace) if torchrun_rank() == 0 else None
    watching = _watching(config, directory, observers)

    def take(record: Record) -> None:
        for observer in watching:
            observer(record)

    result = simulate(
        builder,
        data,
        policy=config.policy.build(),
        local=config.local.build(),
        partition=config.partition.build(data.clients is not None),
        participation=config.participation.build(),
        iterations=config.train.iterations,
        seed=config.seed,
        workers=workers or available_cores(),
        weights=config.train.weights,
        layers=config.model.layers,
        adaptive=config.model.adaptive,
        evaluate_every=config.train.evaluate_every,
        device=config.train.device,
        execution=config.train.execution,
        precision=config.train.precision,
        on_record=take,
    )
    if directory:
        directory.finish(result)
    return result


def _watching(config: Config, directory: RunDirectory | None, observers: Sequence[Observer]) -> list[Observer]:
    if directory is None:
        return []
    board = tensorboard_writer(directory.path) if config.output.tensorboard else None
    return [directory.record, *([board] if board else []), *observers]


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
