"""Which runs are the same setting: those whose configurations agree in everything but the seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.run.config import parse_config
from fedlama.run.directory import Run

# A run is told from another of its setting by these; what is written beside a run changes nothing in it.
IGNORED = ("seed", "versions", "output")


@dataclass(frozen=True)
class Group:
    """The runs of one setting, under a name that no other setting of the comparison has."""

    label: str
    config: Mapping[str, Any]  # dotted key → value, without the seed
    runs: tuple[Run, ...]


def group_runs(runs: Sequence[Run], labels: Mapping[Path, str] | None = None) -> list[Group]:
    """The settings in order of first appearance; `labels` names them by their run directories."""
    named = {path.resolve(): label for path, label in (labels or {}).items()}
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        config = json.dumps(flat_config(run), sort_keys=True)  # first: it says what is wrong with a configuration
        found.setdefault((named.get(run.path.resolve(), run.label), config), []).append(run)
    groups = [Group(printable(key[0]), flat_config(members[0]), tuple(members)) for key, members in found.items()]
    return [Group(_full_label(group, groups), group.config, group.runs) for group in groups]


def flat_config(run: Run) -> dict[str, Any]:
    """The configuration with its defaults as dotted keys, without those that do not make a setting."""
    tables = parse_config(run.config, str(run.path / "config.toml")).model_dump()
    if tables["policy"]["kind"] == "fedavg":  # only the interval counts there
        tables["policy"] = {name: tables["policy"][name] for name in ("kind", "base_interval")}
    given = {table: keys or {} for table, keys in tables.items() if table not in IGNORED}  # [faults] may be left out
    return {f"{table}.{key}": value for table, keys in given.items() for key, value in keys.items()}


def differing_keys(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys that do not have one value in all of these configurations."""
    configs = list(configs)
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs)]


def shown_value(value: Any) -> str:
    """A configuration's value in a label."""
    if value is None:
        return "default"
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def printable(text: str) -> str:
    """Without characters that would command a terminal instead of being shown on it."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def _full_label(group: Group, groups: Sequence[Group]) -> str:
    namesakes = [other.config for other in groups if other.label == group.label]
    details = [f"{key}={shown_value(group.config.get(key))}" for key in differing_keys(namesakes)]
    return " ".join([group.label, *details])
