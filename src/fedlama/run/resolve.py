"""From a configuration to what it describes: data, partition, policy and the rest, each built once."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy
import torch
from torch import nn

from fedlama.base import InputError, shown
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.data import (
    Dataset,
    Dirichlet,
    Shards,
    arrays,
    data_files,
    fingerprint,
    load,
)
from fedlama.local import LocalRule
from fedlama.processes.cpu import cpu_type
from fedlama.run.choices import PARTITIONS
from fedlama.run.config import Config
from fedlama.run.default_models import default_model, model_builder
from fedlama.run.references import Reference, is_reference
from fedlama.run.tables import DataSection
from fedlama.server import ServerRule
from fedlama.training import Faults, Metric, Participation
from fedlama.training.arguments import task_of
from fedlama.training.coding import check_window
from fedlama.training.evaluation import Loss
from fedlama.training.simulation import default_evaluate_every
from fedlama.version import __version__

# x_train, y_train, x_test, y_test and, if there are clients, their ids
PARTS_OF_ARRAYS = (4, 5)


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
    loss: Loss | None = None  # None: what suits the data
    metric: Metric | None = None


# By configuration: a study asks for the same ones several times, and so does its progress.
RESOLVED: dict[str, Resolved] = {}
MAX_RESOLVED = 64


def resolve(config: Config) -> Resolved:
    """Read the data, draw the partition and build everything else that a configuration describes, once per process.

    What holds a part of the data out, which is a copy, or refers to code of the user's own is built each time.
    """
    if config.data.validation or own_code(config):
        return _resolve(config)
    key = config.model_dump_json()
    if key not in RESOLVED:
        if len(RESOLVED) >= MAX_RESOLVED:
            RESOLVED.clear()
        RESOLVED[key] = _resolve(config)
    return RESOLVED[key]


def _resolve(config: Config) -> Resolved:
    data = prepared_data(config)
    has_ids = data.clients is not None
    policy = config.policy.build()
    participation = config.participation.build()
    partition = config.partition.build(has_ids)
    shards = partition.assign(data, config.seed)
    if not isinstance(shards, Shards):
        raise InputError(
            f"partition.kind = {shown(config.partition.kind)}: assign must return fedlama.data.Shards, "
            f"not {shown(shards)}"
        )
    uplink = config.uplink.build()
    check_window(uplink, policy, participation.window_steps(policy))
    local = config.local.build()
    server = config.server.build()
    loss = _own_function("train.loss", config.train.loss)
    metric = _metric(config, data, loss)

    model_name = config.model.name or default_model(data)
    partition_keys: dict[str, Any] = {
        "kind": config.partition.resolved_kind(has_ids),
        "clients": len(shards),
    }
    if partition_keys["kind"] not in PARTITIONS:
        partition_keys["sha256"] = _checked_shards(config, shards)
    if isinstance(partition, Dirichlet):
        partition_keys |= {
            "alpha": partition.alpha,
            "min_samples": partition.min_samples,
        }
    train_keys: dict[str, Any] = {
        "evaluate_every": config.train.evaluate_every
        or default_evaluate_every(config.train.iterations),
    }
    if metric is not None and config.train.metric is not None:
        train_keys["metric_name"] = metric.name
        train_keys["higher_is_better"] = metric.higher_is_better
    written_out = {
        "data": config.data.model_copy(update={"sha256": _checked_hash(config.data)}),
        "model": config.model.model_copy(update={"name": model_name}),
        "partition": config.partition.model_copy(update=partition_keys),
        "participation": config.participation.model_copy(
            update={"window": participation.window_steps(policy)}
        ),
        "train": config.train.model_copy(update=train_keys),
        "hashes": _hashes(config),
        "versions": versions(),
    }
    return Resolved(
        config=config.model_copy(update=written_out),
        data=data,
        shards=shards,
        policy=policy,
        local=local,
        server=server,
        uplink=uplink,
        downlink=config.downlink.build(),
        participation=participation,
        faults=config.faults.build() if config.faults else None,
        model=_model(config, model_name, data),
        loss=loss,
        metric=metric,
    )


def _checked_shards(config: Config, shards: Shards) -> str:
    """Who has which sample, where a partition of the user's own says so; it may be pinned as data is."""
    found = shards.content_hash()
    wanted = config.partition.sha256
    if wanted is not None and wanted != found:
        raise InputError(
            f"partition.sha256 = {wanted!r}: that of {config.partition.kind} with this seed is {found}"
        )
    return found


def prepared_data(config: Config) -> Dataset:
    """What a configuration trains and is tested on."""
    data = load_data(config.data.name, json.dumps(config.data.options))
    share = config.data.validation
    if share:
        data = data.hold_out(share, config.seed)
    transform = _own_function("data.transform", config.data.transform)
    if transform is not None:
        data = replace(data, transform=transform)
    augment = _own_function("data.augment", config.data.augment)
    if augment is not None:
        data = replace(data, augment=augment)
    return data


@cache
def load_data(name: str, options: str = "null") -> Dataset:
    """A data set by name or path, or as a function of the user's own loads it; read once per process.

    Arguments:
        name: As `data.name` has it.
        options: For the user's own function, as JSON.
    """
    if is_reference(name):
        return _own_data(Reference("data.name", name), json.loads(options))
    try:
        return load(name)
    except InputError as error:
        raise InputError(f"data.name = {name!r}: {error}") from None


def _own_data(reference: Reference, options: dict[str, Any] | None) -> Dataset:
    loaded = reference.call(options=options)
    if isinstance(loaded, Dataset):
        return loaded
    if isinstance(loaded, tuple) and len(loaded) in PARTS_OF_ARRAYS:
        try:
            return arrays(*loaded, name=reference.name)
        except InputError as error:
            raise reference.wrong(str(error)) from None
    raise reference.wrong(
        f"must return what fedlama.data.arrays(…) makes, or its arguments as a tuple, not {shown(loaded)}"
    )


def _own_function(key: str, text: str | None) -> Callable[..., Any] | None:
    """A function of tensors that a configuration refers to; of a class such as torch.nn:MSELoss, one made of it."""
    if text is None:
        return None
    reference = Reference(key, text)
    found = reference.load()
    if not isinstance(found, type):
        return found
    made = reference.call()
    if not callable(made):
        raise reference.wrong(
            f"makes {shown(made)}, which cannot be called with outputs and targets"
        )
    return made


def _metric(config: Config, data: Dataset, loss: Loss | None) -> Metric | None:
    """What the model is judged by, with the name and the direction that the configuration gives it."""
    train = config.train
    function = _own_function("train.metric", train.metric)
    if function is not None:
        return Metric(function, train.metric_name or "", train.higher_is_better)
    if train.metric_name is not None or train.higher_is_better is not None:
        raise InputError(
            "train.metric_name and train.higher_is_better mean nothing without train.metric"
        )
    if loss is None and data.y_train.is_floating_point():
        raise InputError(
            "the targets are not whole numbers, so there is no default loss: set train.loss to a function of outputs "
            'and targets, such as "torch.nn.functional:mse_loss"'
        )
    return task_of(data, loss, None)[1]


def _model(config: Config, name: str, data: Dataset) -> Callable[[], nn.Module]:
    if ":" not in name:
        return model_builder(name, data)
    if not is_reference(name):
        raise InputError(
            f"model.name = {shown(name)}: must be the name of a model, or module:name of your own"
        )
    reference = Reference("model.name", name)
    reference.load()  # wrong input shows before anything is spent

    def build() -> nn.Module:
        module = reference.call(data, options=config.model.options)
        if not isinstance(module, nn.Module):
            raise reference.wrong(f"must return an nn.Module, not {shown(module)}")
        return module

    return build


def own_code(config: Config) -> list[Reference]:
    """All that a configuration refers to of the user's own."""
    named = {
        "data.name": config.data.name,
        "data.transform": config.data.transform,
        "data.augment": config.data.augment,
        "model.name": config.model.name,
        "partition.kind": config.partition.kind,
        "policy.kind": config.policy.kind,
        "local.rule": config.local.rule,
        "server.rule": config.server.rule,
        "train.loss": config.train.loss,
        "train.metric": config.train.metric,
    }
    return [
        Reference(key, text)
        for key, text in named.items()
        if text is not None and is_reference(text)
    ]


def _hashes(config: Config) -> dict[str, str]:
    """The SHA-256 of each file with code of the user's own, by what refers to it."""
    hashes: dict[str, str] = {}
    for reference in own_code(config):
        found = reference.file_hash()
        if found is not None:
            hashes[reference.text] = found
    return hashes


@cache
def data_hash(name: str, options: str = "null") -> str | None:
    """The SHA-256 of a set's files, computed once per process; the embedded digits have none.

    What a function of the user's own loaded has that of its samples, targets and owners.
    """
    if is_reference(name):
        return load_data(name, options).content_hash()
    return fingerprint(name)


def _checked_hash(data: DataSection) -> str | None:
    options = json.dumps(data.options)
    found = data_hash(data.name, options)
    if data.sha256 is not None and data.sha256 != found:
        source = data_source(data)
        raise InputError(
            f"data.sha256 = {data.sha256!r}: the SHA-256 of {data.name} ({source}) is {found}"
        )
    return found


def data_source(data: DataSection) -> str:
    """Where the data is from, for messages."""
    if is_reference(data.name):
        return f"what {data.name} returns"
    paths = data_files(data.name)
    return ", ".join(map(str, paths)) or "the embedded data"


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
