"""From values to the configuration that describes them: what `fedlama.simulate` writes into a run directory.

Code of the user's own is named (`module:name`), and the file that it is in is hashed. Such a configuration can be run
again where those names can be imported, and where the fields of own dataclasses are what TOML can hold (or such a
dataclass again): all else stands there as text, to be read by people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from torch import nn

from fedlama.compress import Codec
from fedlama.compress.forwarding import Forwarding
from fedlama.core import Policy
from fedlama.data import Dataset, Partition, Shards
from fedlama.local import LocalRule
from fedlama.run.choices import PARTITIONS
from fedlama.run.codecs import CodecSection
from fedlama.run.config import Config, parse_config
from fedlama.run.own_code import hash_of, reference_to
from fedlama.run.partitions import PartitionSection
from fedlama.run.resolve import Resolved, versions
from fedlama.run.tables import (
    EvaluateSection,
    LocalSection,
    ModelSection,
    PolicySection,
    ServerSection,
    TrainSection,
)
from fedlama.server import ServerRule
from fedlama.training import Faults, Metric, Participation
from fedlama.training.evaluation import Loss
from fedlama.training.options import RunOptions

SOURCE = "these arguments"  # where a configuration is from, for messages


def described(
    model: Callable[[], nn.Module],
    data: Dataset,
    options: RunOptions,
    *,
    policy: Policy,
    local: LocalRule,
    server: ServerRule,
    uplink: Codec | None,
    downlink: Codec | None,
    partition: Partition,
    participation: Participation,
    faults: Faults | None,
    loss: Loss | None,
    metric: Metric | None,
    has_own_metric: bool,
) -> Resolved:
    """All that a run is built of, with its configuration; the arguments are those of `fedlama.simulate`, checked."""
    shards = partition.assign(data, options.seed)
    options = replace(options, evaluate_every=options.evaluation_interval)
    train = TrainSection.table_of_options(options)

    # All that may be code of the user's own
    own: list[Any] = [model, policy, local, server]
    for code in (_innermost(uplink), _innermost(downlink), loss, data.transform):
        if code is not None:
            own.append(code)
    if loss is not None:
        train["loss"] = reference_to(loss)
    if metric is not None and has_own_metric:
        own.append(metric.function)
        train["metric"] = reference_to(metric.function)
        train["metric_name"] = metric.name
        train["higher_is_better"] = metric.higher_is_better

    tables: dict[str, Any] = {
        **Config.table_of_options(options),
        "data": {"name": data.name, "sha256": data.content_hash()},
        "model": {
            "name": reference_to(model),
            **ModelSection.table_of_options(options),
        },
        "partition": _partition_table(partition, shards),
        "participation": {
            "active": participation.active,
            "window": participation.window_steps(policy),
        },
        "policy": policy_table(policy),
        "local": LocalSection.table_of(local),
        "server": ServerSection.table_of(server),
        "uplink": CodecSection.table_of(uplink),
        "downlink": CodecSection.table_of(downlink),
        "evaluate": EvaluateSection.table_of_options(options),
        "train": train,
        "versions": versions(),
    }
    if data.transform is not None:
        tables["data"]["transform"] = reference_to(data.transform)
    if callable(data.augment):
        own.append(data.augment)
        tables["data"]["augment"] = reference_to(data.augment)
    if faults is not None:
        given = asdict(faults).items()
        tables["faults"] = {key: value for key, value in given if value is not None}
    tables["hashes"] = _hashes(own)

    return Resolved(
        config=parse_config(tables, SOURCE),
        data=data,
        shards=shards,
        policy=policy,
        local=local,
        server=server,
        uplink=uplink,
        downlink=downlink,
        participation=participation,
        faults=faults,
        model=model,
        loss=loss,
        metric=metric,
    )


def policy_table(policy: Policy) -> dict[str, Any]:
    """[policy] of a run directory.

    Arguments:
        policy: Any; one of the user's own may keep τ' in a property, and a report measures costs by it.
    """
    table = PolicySection.table_of(policy)
    table.setdefault("base_interval", int(policy.base_interval))
    return table


def _innermost(codec: Codec | None) -> Codec | None:
    """The codec that does the work: feedback and the like around it are fedlama's own."""
    while isinstance(codec, Forwarding):
        codec = codec.inner
    return codec


def _partition_table(partition: Partition, shards: Shards) -> dict[str, Any]:
    table = PartitionSection.table_of(partition)
    table["clients"] = len(shards)
    if table["kind"] not in PARTITIONS:
        table["sha256"] = shards.content_hash()
    return table


def _hashes(own: Sequence[Any]) -> dict[str, str]:
    """The SHA-256 of each file of the user's that these are written in, by what refers to it."""
    hashes: dict[str, str] = {}
    for thing in own:
        found = hash_of(thing)
        if found is not None:
            hashes[reference_to(thing)] = found
    return hashes
