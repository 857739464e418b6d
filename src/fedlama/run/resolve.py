"""From a configuration to what it describes: data, partition, policy and the rest, each built once."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy
import torch
from torch import nn

from fedlama.base import InputError
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.data import Dataset, Dirichlet, Shards, data_files, fingerprint, load
from fedlama.local import LocalRule
from fedlama.processes.cpu import cpu_type
from fedlama.run.config import Config, DataSection
from fedlama.run.default_models import default_model, model_builder
from fedlama.server import ServerRule
from fedlama.training import Faults, Participation
from fedlama.training.simulation import default_evaluate_every
from fedlama.version import __version__


@dataclass(frozen=True)
class Resolved:
    """What was built from a configuration, and `config` itself with every default written out."""

    config: Config
    data: Dataset
    shards: Shards
    policy: Policy
    local: LocalRule
    server: ServerRule
    uplink: Codec | None
    downlink: Codec | None
    participation: Participation
    faults: Faults | None
    model: Callable[[], nn.Module]


def resolve(config: Config) -> Resolved:
    """Read the data, draw the partition and build everything else that a configuration describes, once."""
    data = prepared_data(config)
    has_ids = data.clients is not None
    policy = config.policy.build()
    participation = config.participation.build()
    partition = config.partition.build(has_ids)
    shards = partition.assign(data, config.seed)

    model_name = config.model.name or default_model(data)
    partition_keys = {"kind": config.partition.resolved_kind(has_ids), "clients": len(shards)}
    if isinstance(partition, Dirichlet):
        partition_keys |= {"alpha": partition.alpha, "min_samples": partition.min_samples}
    every = config.train.evaluate_every or default_evaluate_every(config.train.iterations)
    written_out = {
        "data": config.data.model_copy(update={"sha256": _checked_hash(config.data)}),
        "model": config.model.model_copy(update={"name": model_name}),
        "partition": config.partition.model_copy(update=partition_keys),
        "participation": config.participation.model_copy(update={"window": participation.window_steps(policy)}),
        "train": config.train.model_copy(update={"evaluate_every": every}),
        "versions": versions(),
    }
    return Resolved(
        config=config.model_copy(update=written_out),
        data=data,
        shards=shards,
        policy=policy,
        local=config.local.build(),
        server=config.server.build(),
        uplink=config.uplink.build(),
        downlink=config.downlink.build(),
        participation=participation,
        faults=config.faults.build() if config.faults else None,
        model=model_builder(model_name, data),
    )


def prepared_data(config: Config) -> Dataset:
    """What a configuration trains and is tested on."""
    data = load_data(config.data.name)
    share = config.data.validation
    if not share:
        return data
    return data.hold_out(share, config.seed)


@cache
def load_data(name: str) -> Dataset:
    """A data set by name or path, read once per process."""
    try:
        return load(name)
    except InputError as error:
        raise InputError(f"data.name = {name!r}: {error}") from None


@cache
def data_hash(name: str) -> str | None:
    """The SHA-256 of a set's files, computed once per process; the embedded digits have none."""
    return fingerprint(name)


def _checked_hash(data: DataSection) -> str | None:
    found = data_hash(data.name)
    if data.sha256 is not None and data.sha256 != found:
        paths = data_files(data.name)
        files = ", ".join(map(str, paths)) or "the embedded data"
        raise InputError(f"data.sha256 = {data.sha256!r}: the SHA-256 of {data.name} ({files}) is {found}")
    return found


def versions() -> dict[str, str]:
    """What a result depends on beside its configuration."""
    return {
        "fedlama": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "machine": platform.machine(),
        "cpu": cpu_type(),
    }
