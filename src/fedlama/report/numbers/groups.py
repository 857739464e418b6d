"""Which runs may be compared: those that differ in policy, rules, codec, learning rate and seed, in nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.base import InputError
from fedlama.report.numbers.comparison import Comparison, compare
from fedlama.report.numbers.settings import differing_keys, flat_config, is_hash, printable, setting_runs, shown_value
from fedlama.run.directory import Run

# What an experiment is about: everything in these tables may differ within a comparison.
COMPARED_TABLES = ("policy", "local", "server", "uplink", "downlink")
# Of the local rule, what belongs to the task and not to the method.
TASK_OF_CLIENTS = ("local.batch_size", "local.momentum", "local.weight_decay", "local.decayed")
# How a run is carried out, not what it is.
OPERATION = ("train.checkpoint_minutes", "train.device", "train.execution", "evaluate.clients")
# The words of the field for keys of a configuration.
NAMES = {
    "data.name": "data",
    "data.validation": "held out for validation",
    "model.name": "model",
    "partition.kind": "partition",
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
    "train.weights": "weights",
    "train.precision": "precision",
}


@dataclass(frozen=True)
class ComparisonGroup:
    """Runs that may be compared with each other, under a title that says how they differ from the other groups."""

    title: str  # empty where there is one group only
    comparison: Comparison


def compare_groups(
    runs: Sequence[Run],
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

    groups: dict[str, list[Run]] = {}
    for run in runs:
        task = json.dumps(_task(run), sort_keys=True)
        groups.setdefault(task, []).append(run)

    _check_baseline(baseline, list(groups.values()), labels)
    titles = _titles(list(groups.values()))
    found: list[ComparisonGroup] = []
    for title, members in zip(titles, groups.values(), strict=True):
        own_baseline = None
        if baseline in _labels(members, labels):
            own_baseline = baseline
        comparison = compare(members, labels=labels, baseline=own_baseline)
        found.append(ComparisonGroup(title, comparison))
    return found


def _task(run: Run) -> dict[str, Any]:
    """What must agree: the configuration without what is compared."""
    task: dict[str, Any] = {}
    for key, value in flat_config(run).items():
        table = key.split(".")[0]
        compared = table in COMPARED_TABLES and key not in TASK_OF_CLIENTS
        if not compared and key not in OPERATION:
            task[key] = value
    return task


def _labels(runs: Sequence[Run], labels: Mapping[Path, str] | None) -> list[str]:
    return [setting.label for setting in setting_runs(runs, labels)]


def _check_baseline(baseline: str | None, groups: Sequence[Sequence[Run]], labels: Mapping[Path, str] | None) -> None:
    if baseline is None:
        return
    known: dict[str, None] = {}
    for members in groups:
        known.update(dict.fromkeys(_labels(members, labels)))
    if baseline not in known:
        raise InputError(f"baseline {baseline!r} is none of the settings: {', '.join(known)}")


def _titles(groups: Sequence[Sequence[Run]]) -> list[str]:
    """How the groups differ; their folders, where that is nothing a reader could read."""
    if len(groups) == 1:
        return [""]

    tasks = [_task(members[0]) for members in groups]
    keys = [key for key in differing_keys(tasks) if not is_hash(key)]
    titles: list[str] = []
    for task in tasks:
        parts = [f"{NAMES.get(key, key)} {shown_value(task.get(key))}" for key in keys]
        titles.append(", ".join(parts))

    if len(set(titles)) == len(titles):
        return titles
    folders = [_common_folder(members) for members in groups]
    above = os.path.commonpath(folders)
    named: list[str] = []
    for title, folder in zip(titles, folders, strict=True):
        place = printable(os.path.relpath(folder, above))
        named.append(f"{title} ({place})" if title else place)
    return named


def _common_folder(runs: Sequence[Run]) -> str:
    return os.path.commonpath([run.path.resolve() for run in runs])
