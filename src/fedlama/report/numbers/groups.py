"""Which runs may be compared: those that differ in policy, rules, codec, learning rate and seed, in nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from fedlama.base import InputError, shown
from fedlama.report.numbers.comparison import RunComparison, compare
from fedlama.report.numbers.reading import everyone_trains
from fedlama.report.numbers.settings import (
    differing_keys,
    flat_config,
    is_hash,
    printable,
    setting_runs,
    shown_value,
)
from fedlama.run.changed_keys import OPERATION
from fedlama.run.choices import PARTITIONS
from fedlama.run.partitions import PartitionSection
from fedlama.run.recorded import RecordedRun
from fedlama.training.options import default_evaluate_every

# What an experiment is about: everything in these tables may differ within a comparison.
COMPARED_TABLES = ("policy", "local", "server", "uplink", "downlink")
# Of the local rule, what belongs to the task and not to the method.
TASK_OF_CLIENTS = (
    "local.batch_size",
    "local.momentum",
    "local.weight_decay",
    "local.decayed",
)
# How a run is carried out, not what it is; some of it may make other last bits, so only a comparison passes over it.
CARRIED_OUT = (
    *OPERATION,
    "train.device",
    "train.execution",
    "evaluate.clients",
    "evaluate.average",
)
WINDOW = "participation.window"
METRIC = "train.metric"
OF_METRIC = ("train.metric_name", "train.higher_is_better")
ITERATIONS = "train.iterations"
KIND_OF_PARTITION = "partition.kind"
EVALUATE_EVERY = "train.evaluate_every"
# The words of the field for keys of a configuration.
NAMES = {
    "data.name": "data",
    "data.validation": "held out for validation",
    "model.name": "model",
    KIND_OF_PARTITION: "partition",
    "partition.alpha": "α",
    "partition.clients": "clients",
    "participation.active": "active clients",
    "participation.window": "window",
    "local.batch_size": "batch size",
    "local.learning_rate": "learning rate",
    "local.momentum": "momentum",
    "local.weight_decay": "weight decay",
    "train.iterations": "steps",
    "train.evaluate_every": "evaluated every",
    "train.loss": "loss",
    "train.metric": "metric",
    "train.weights": "weights",
    "train.precision": "precision",
}


@dataclass(frozen=True)
class ComparisonGroup:
    """Runs that may be compared with each other, under a title that says how they differ from the other groups."""

    title: str  # empty where there is one group only
    comparison: RunComparison


def compare_groups(
    runs: Sequence[RecordedRun],
    *,
    labels: Mapping[Path, str] | None = None,
    baseline: str | None = None,
) -> list[ComparisonGroup]:
    """Compare runs with those that share their task, and with no others; groups in order of first appearance.

    Arguments:
        runs: finished or not.
        labels: names of settings by run directory, in place of their policies.
        baseline: the label of the setting whose cost is 100 %; in a group without it, the most expensive one.
    """
    if not runs:
        raise InputError("there is no run to compare")

    groups = _grouped(runs)
    _check_baseline(baseline, groups, labels)
    titles = _titles(groups)
    found: list[ComparisonGroup] = []
    for title, members in zip(titles, groups, strict=True):
        own_baseline = None
        if baseline in _labels(members, labels):
            own_baseline = baseline
        comparison = compare(members, labels=labels, baseline=own_baseline)
        found.append(ComparisonGroup(title, comparison))
    return found


def _grouped(runs: Sequence[RecordedRun]) -> list[list[RecordedRun]]:
    """Runs by their task and, as code of the user's own may build another one under the same name, by their network.

    An unfinished run does not tell its network yet, and is taken to have that of the first finished one of its task.
    """
    tasks: list[str] = []
    own_networks: list[str | None] = []
    network_of_task: dict[str, str] = {}
    for run in runs:
        task = json.dumps(_task(run), sort_keys=True)
        network = None
        if run.summary is not None:
            network = json.dumps(run.summary.network)
            network_of_task.setdefault(task, network)
        tasks.append(task)
        own_networks.append(network)

    # Only now: the finished run of a task may come after an unfinished one
    groups: dict[tuple[str, str], list[RecordedRun]] = {}
    for run, task, own in zip(runs, tasks, own_networks, strict=True):
        network = own
        if network is None:
            network = network_of_task.get(task, "")
        group = groups.setdefault((task, network), [])
        group.append(run)
    return list(groups.values())


def _task(run: RecordedRun) -> dict[str, Any]:
    """What must agree: the configuration without what is compared."""
    task: dict[str, Any] = {}
    everyone = everyone_trains(run.config)
    for key, value in flat_config(run).items():
        # It follows from the policy's cycle
        if key == WINDOW and everyone:
            continue
        if key in CARRIED_OUT:
            continue
        table = key.split(".")[0]
        is_compared = table in COMPARED_TABLES and key not in TASK_OF_CLIENTS
        if not is_compared:
            task[key] = value
    return task


def _labels(
    runs: Sequence[RecordedRun], labels: Mapping[Path, str] | None
) -> list[str]:
    return [setting.label for setting in setting_runs(runs, labels)]


def _check_baseline(
    baseline: str | None,
    groups: Sequence[Sequence[RecordedRun]],
    labels: Mapping[Path, str] | None,
) -> None:
    if baseline is None:
        return
    known: dict[str, None] = {}
    for members in groups:
        known.update(dict.fromkeys(_labels(members, labels)))
    if baseline not in known:
        raise InputError(
            f"baseline {shown(baseline)} is none of the settings: {', '.join(known)}"
        )


def _titles(groups: Sequence[Sequence[RecordedRun]]) -> list[str]:
    """How the groups differ; their folders, where that is nothing a reader could read."""
    if len(groups) == 1:
        return [""]

    tasks = [_task(members[0]) for members in groups]
    keys = _titled_keys(tasks)
    titles = [_title(task, keys) for task in tasks]
    if not _are_distinct(titles):
        titles = _with_networks(titles, groups)
    if not _are_distinct(titles):
        titles = _with_folders(titles, groups)
    return titles


def _are_distinct(titles: Sequence[str]) -> bool:
    return len(set(titles)) == len(titles)


def _with_networks(
    titles: Sequence[str], groups: Sequence[Sequence[RecordedRun]]
) -> list[str]:
    """The titles with the sizes of the networks, unless all are the same."""
    sizes = [_network_text(members) for members in groups]
    if len(set(sizes)) == 1:
        return list(titles)
    extended: list[str] = []
    for both in zip(titles, sizes, strict=True):
        said = [part for part in both if part]
        extended.append(", ".join(said))
    return extended


def _with_folders(
    titles: Sequence[str], groups: Sequence[Sequence[RecordedRun]]
) -> list[str]:
    """The titles with where the runs are."""
    folders = [_common_folder(members) for members in groups]
    above = os.path.commonpath(folders)
    named: list[str] = []
    for title, folder in zip(titles, folders, strict=True):
        place = os.path.relpath(folder, above)
        text = printable(place)
        if title:
            text = f"{title} ({text})"
        named.append(text)
    return named


def _titled_keys(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys in which tasks differ, without digests and without those that follow from others."""
    keys = [key for key in differing_keys(tasks) if not is_hash(key)]
    following: list[str] = []
    if METRIC in keys:
        following += OF_METRIC
    if ITERATIONS in keys:
        by_default = [_is_evaluated_by_default(task) for task in tasks]
        if all(by_default):
            following.append(EVALUATE_EVERY)
    for key in keys:
        if all(_is_default_of_partition(task, key) for task in tasks):
            following.append(key)
    return [key for key in keys if key not in following]


def _is_evaluated_by_default(task: Mapping[str, Any]) -> bool:
    return task.get(EVALUATE_EVERY) in (None, default_evaluate_every(task[ITERATIONS]))


def _is_default_of_partition(task: Mapping[str, Any], key: str) -> bool:
    """Whether a task has no such option of a partition, or the one that follows from its kind."""
    table, _, option = key.partition(".")
    if table != PartitionSection.table:
        return False
    value = task.get(key)
    if value is None:
        return True
    kind = task.get(KIND_OF_PARTITION, "")
    built = PARTITIONS.get(kind)
    if built is None:
        return False
    argument = signature(built).parameters.get(option)
    if argument is None:
        return False
    return value == argument.default


def _title(task: Mapping[str, Any], keys: Sequence[str]) -> str:
    """A task's values of these keys; one that it does not have says nothing, unless it has none of them."""
    own = [key for key in keys if task.get(key) is not None]
    parts: list[str] = []
    for key in own or keys:
        name = NAMES.get(key, key)
        value = task.get(key)
        part = f"{name} {shown_value(value)}"
        parts.append(part)
    return ", ".join(parts)


def _network_text(runs: Sequence[RecordedRun]) -> str:
    for run in runs:
        if run.summary is not None:
            size = sum(layer.size for layer in run.summary.layers)
            return f"network of {size:,} parameters"
    return ""


def _common_folder(runs: Sequence[RecordedRun]) -> str:
    return os.path.commonpath([run.path.resolve() for run in runs])
