"""From a configuration to what it describes: data, partition, policy and the rest, each built once."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy
import torch
from torch import nn

from fedlama.base import InputError, printable, shown
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.data import (
    Dataset,
    Shards,
    data_files,
    fingerprint,
    load,
)
from fedlama.local import LocalRule
from fedlama.processes.cpu import cpu_type
from fedlama.run.config import Config
from fedlama.run.default_models import default_model
from fedlama.run.kept import MAX_DATA_SETS, Kept
from fedlama.run.partitions import PartitionSection
from fedlama.run.references import Reference, is_reference
from fedlama.run.tables import DataSection
from fedlama.run.tasks import metric_of, model_of, own_data, own_function
from fedlama.server import ServerRule
from fedlama.training import Faults, Metric, Participation
from fedlama.training.coding import check_window
from fedlama.training.evaluation import Loss
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
    loss: Loss | None = None  # None: what suits the data
    metric: Metric | None = None


# Studies ask for the same ones several times, those of `fedlama reproduce` also one study after the other.
RESOLVED: Kept[Resolved] = Kept()
HASH_DIGITS = 64  # of a SHA-256


def resolve(config: Config) -> Resolved:
    """Read the data, draw the partition and build everything else that a configuration describes.

    What was built is kept for the next who asks, of the last few data sets. What refers to code of the user's own is
    built each time, because that code may give something else by then: a study keeps it for as long as it takes. So is
    what holds a part of the data out, which is of use to one study only.
    """
    if config.data.validation or own_code(config):
        return _resolve(config)
    return RESOLVED.get(config, _resolve)


def _resolve(config: Config) -> Resolved:
    data = prepared_data(config)
    has_ids = data.clients is not None
    policy = config.policy.build()
    participation = config.participation.build()
    partition_section = config.partition.decided(has_ids)
    partition = partition_section.build(has_ids)
    shards = partition.assign(data, config.seed)
    if not isinstance(shards, Shards):
        raise InputError(
            f"partition.kind = {shown(config.partition.kind)}: assign must return fedlama.data.Shards, "
            f"not {shown(shards)}"
        )

    uplink = config.uplink.build()
    try:
        window = participation.window_steps(policy)
    except InputError as error:
        # In Python it is an argument, and called by its name there
        raise InputError(f"participation.{error}") from None
    check_window(uplink, policy, window)
    local = config.local.build()
    server = config.server.build()
    loss = own_function("train.loss", config.train.loss)
    metric = metric_of(config, data, loss)

    model_name = config.model.name or default_model(data)
    partition_keys = _partition_keys(partition_section, shards)
    train_keys = _train_keys(config, metric)
    data_keys = {"sha256": _checked_hash(config.data)}
    written_out = {
        "data": config.data.model_copy(update=data_keys),
        "model": config.model.model_copy(update={"name": model_name}),
        "partition": partition_section.model_copy(update=partition_keys),
        "participation": config.participation.model_copy(update={"window": window}),
        "train": config.train.model_copy(update=train_keys),
        "hashes": _hashes(config),
        "versions": versions(),
    }
    resolved = config.model_copy(update=written_out)

    downlink = config.downlink.build()
    faults = None
    if config.faults:
        faults = config.faults.build()
    return Resolved(
        config=resolved,
        data=data,
        shards=shards,
        policy=policy,
        local=local,
        server=server,
        uplink=uplink,
        downlink=downlink,
        participation=participation,
        faults=faults,
        model=model_of(config, model_name, data),
        loss=loss,
        metric=metric,
    )


def _partition_keys(section: PartitionSection, shards: Shards) -> dict[str, Any]:
    """[partition] with what is known once the samples are dealt."""
    keys: dict[str, Any] = {"clients": len(shards)}
    if section.is_own_code:
        wanted = section.clients
        if wanted is not None and wanted != len(shards):
            own = printable(str(section.kind))
            raise InputError(
                f"partition.clients = {wanted}: {own} deals the samples to {len(shards):,} clients"
            )
        keys["sha256"] = _checked_shards(section, shards)
    return keys


def _train_keys(config: Config, metric: Metric | None) -> dict[str, Any]:
    """[train] with its defaults written out."""
    train = config.train
    keys: dict[str, Any] = {"evaluate_every": config.options.evaluation_interval}
    if metric is not None and train.metric is not None:
        keys["metric_name"] = metric.name
        keys["higher_is_better"] = metric.higher_is_better
    return keys


def _checked_shards(section: PartitionSection, shards: Shards) -> str:
    """Who has which sample, where a partition of the user's own says so; it may be pinned as data is."""
    found = shards.content_hash()
    wanted = section.sha256
    if wanted is not None and wanted != found:
        raise InputError(
            f"partition.sha256 = {shown(wanted, HASH_DIGITS)}: that of {section.kind} with this seed is {found}"
        )
    return found


def prepared_data(config: Config) -> Dataset:
    """What a configuration trains and is tested on."""
    options = json.dumps(config.data.options)
    share = config.data.validation
    if share:
        data = load_data(config.data.name, options, share, config.seed)
    else:
        data = load_data(config.data.name, options)

    transform = own_function("data.transform", config.data.transform)
    if transform is not None:
        data = replace(data, transform=transform)
    augment = own_function("data.augment", config.data.augment)
    if augment is not None:
        data = replace(data, augment=augment)
    return data


@lru_cache(maxsize=MAX_DATA_SETS)
def load_data(
    name: str,
    options: str = "null",
    validation: float | None = None,
    seed: int = 0,
) -> Dataset:
    """A data set by name or path, or as a function of the user's own loads it; the last few are kept.

    Arguments:
        name: As `data.name` has it.
        options: For the user's own function, as JSON.
        validation: The share of the training samples that is held out. What is left is a copy, which runs share.
        seed: Of the run, which decides what is held out.
    """
    if validation:
        whole = load_data(name, options)
        return whole.hold_out(validation, seed)

    if is_reference(name):
        reference = Reference("data.name", name)
        return own_data(reference, json.loads(options))
    try:
        return load(name)
    except InputError as error:
        raise InputError(f"data.name = {shown(name, 200)}: {error}") from None


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
        "uplink.codec": config.uplink.codec,
        "downlink.codec": config.downlink.codec,
        "train.loss": config.train.loss,
        "train.metric": config.train.metric,
    }
    found: list[Reference] = []
    for key, text in named.items():
        # A chain of codecs is a list of fedlama's own
        if isinstance(text, str) and is_reference(text):
            found.append(Reference(key, text))
    return found


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
    wanted = data.sha256
    if wanted is not None and wanted != found:
        source = data_source(data)
        raise InputError(
            f"data.sha256 = {shown(wanted, HASH_DIGITS)}: the SHA-256 of {data.name} ({source}) is {found}"
        )
    return found


def data_source(data: DataSection) -> str:
    """Where the data is from, for messages."""
    if is_reference(data.name):
        return f"what {data.name} returns"

    paths = data_files(data.name)
    listed = ", ".join(map(str, paths))
    return listed or "the embedded data"


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
