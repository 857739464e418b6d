"""From a configuration to a finished run directory."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy
import torch

from fedlama.base import InputError
from fedlama.data import Dataset, Dirichlet, data_files, fingerprint, load
from fedlama.processes.world import torchrun_rank, torchrun_restarts
from fedlama.run.checkpoints import find_checkpoint
from fedlama.run.config import Config, DataSection, read_toml
from fedlama.run.default_models import default_model, model_builder
from fedlama.run.directory import RunDirectory
from fedlama.run.files import locked
from fedlama.run.tensorboard import tensorboard_writer
from fedlama.training import Record, Result, simulate
from fedlama.training.checkpoint import Checkpointing, Control
from fedlama.training.simulation import default_evaluate_every
from fedlama.version import __version__

Observer = Callable[[Record], None]

SAME_SIGNAL = 0.5  # seconds: `timeout` sends its signal to a process and then to its group


@cache
def load_data(name: str) -> Dataset:
    """A data set by name or path, read once a process."""
    try:
        return load(name)
    except InputError as error:
        raise InputError(f"data.name = {name!r}: {error}") from None


def prepared_data(config: Config) -> Dataset:
    """What a configuration trains and is tested on."""
    data, share = load_data(config.data.name), config.data.validation
    return data.hold_out(share, config.seed) if share else data


@cache
def data_hash(name: str) -> str | None:
    """The SHA-256 of a set's files, computed once a process; the embedded digits have none."""
    return fingerprint(name)


def _checked_hash(data: DataSection) -> str | None:
    found = data_hash(data.name)
    if data.sha256 is not None and data.sha256 != found:
        files = ", ".join(map(str, data_files(data.name))) or "the embedded data"
        raise InputError(f"data.sha256 = {data.sha256!r}: the SHA-256 of {data.name} ({files}) is {found}")
    return found


def resolve(config: Config) -> Config:
    """The same configuration with every default that depends on the data or the policy written out."""
    data = prepared_data(config)
    natural = data.clients is not None
    partition = config.partition.build(natural)
    filled = {"kind": config.partition.resolved_kind(natural), "clients": len(partition.assign(data, config.seed))}
    if isinstance(partition, Dirichlet):
        filled |= {"alpha": partition.alpha, "min_samples": partition.min_samples}
    policy = config.policy.build()
    every = config.train.evaluate_every or default_evaluate_every(config.train.iterations)
    update = {
        "data": config.data.model_copy(update={"sha256": _checked_hash(config.data)}),
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
    resume: bool = False,
    quiet: bool = False,
) -> Result | None:
    """Run a configuration into a directory; observers see each record after it is on disk.

    `workers` processes share the work (default: one a core). Of a group that torchrun started, rank 0 writes. With
    `resume`, or when torchrun restarts the group, a run goes on from its last checkpoint; a finished one stays as it
    is, and None is returned.
    """
    config = resolve(config)
    if torchrun_rank() != 0:
        return _simulate(config, workers, lambda record: None, Checkpointing(Control(), lambda content, state: None))
    with locked(out):
        resume = resume or torchrun_restarts() > 0
        directory = RunDirectory(out, config, replace=replace, resume=resume)
        if resume:
            _check_same_data(directory, config)
        if resume and directory.is_finished():
            return None
        keeping = _checkpointing(directory, config, resume)
        watching = _watching(config, directory, observers)

        def take(record: Record) -> None:
            for observer in watching:
                observer(record)

        with stop_on_signals(keeping.control, quiet):
            result = _simulate(config, workers, take, keeping)
        directory.finish(result)
        return result


def _simulate(config: Config, workers: int | None, take: Observer, keeping: Checkpointing) -> Result:
    data = prepared_data(config)
    return simulate(
        model_builder(config.model.name or default_model(data), data),
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
        faults=config.faults.build() if config.faults else None,
        evaluate_every=config.train.evaluate_every,
        device=config.train.device,
        execution=config.train.execution,
        precision=config.train.precision,
        on_record=take,
        checkpointing=keeping,
    )


def _check_same_data(directory: RunDirectory, config: Config) -> None:
    """A run that goes on with other data would end with numbers that belong to neither."""
    path = directory.path / "config.toml"
    stored = read_toml(path).get("data", {}) if path.exists() else {}
    before = stored.get("sha256") if isinstance(stored, dict) and stored.get("name") == config.data.name else None
    if before is not None and before != config.data.sha256:
        files = ", ".join(map(str, data_files(config.data.name)))
        raise InputError(
            f"{files} changed since the run in {directory.path} began (SHA-256 {before[:12]}…, now "
            f"{str(config.data.sha256)[:12]}…): restore the data, or start a new run with another --out"
        )


def _checkpointing(directory: RunDirectory, config: Config, resume: bool) -> Checkpointing:
    """Where checkpoints go and, for a run that is resumed, where it goes on."""
    keeping = Checkpointing(Control(60 * config.train.checkpoint_minutes), directory.save_checkpoint)
    if not resume:
        return keeping
    saved = directory.path / "checkpoint"
    found = find_checkpoint(saved, config.model_dump(exclude_none=True), directory.recorded())
    if found is None:
        directory.check_same_config()
        return keeping
    for sentence in found.refused:
        print(f"fedlama: {sentence}; the one before it is used", file=sys.stderr)
    keeping.resume, keeping.earlier = found.content, directory.continue_after(found.round)
    return keeping


@contextmanager
def stop_on_signals(control: Control, quiet: bool = False) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM finishes the cycle and saves; a second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    first = 0.0

    def ask(number: int, frame: object) -> None:
        nonlocal first
        if first and time.monotonic() - first > SAME_SIGNAL:
            raise KeyboardInterrupt
        if first:
            return
        first = time.monotonic()
        control.request_stop()
        if not quiet:
            print("\nfedlama: finishing the cycle to save a checkpoint; once more stops at once", file=sys.stderr)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watching(config: Config, directory: RunDirectory, observers: Sequence[Observer]) -> list[Observer]:
    board = tensorboard_writer(directory.path) if config.output.tensorboard else None
    return [directory.record, *([board] if board else []), *observers]


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
