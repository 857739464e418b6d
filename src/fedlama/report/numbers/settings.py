"""Which runs are the same setting: those whose configurations agree in everything but the seed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedlama.base import printable
from fedlama.report.numbers.reading import tells_local
from fedlama.run.config import Config, comparable
from fedlama.run.recorded import RecordedRun
from fedlama.run.tables import LocalSection

# Runs of one setting differ in these; what is written or evaluated beside a run changes nothing in it.
IGNORED = ("seed", "versions", "output", "hashes", "evaluate")


@dataclass(frozen=True)
class SettingRuns:
    """The runs of one setting, under a name that no other setting of the comparison has."""

    label: str
    config: Config
    # The configuration as dotted key → value, without the seed
    values: Mapping[str, Any]
    runs: tuple[RecordedRun, ...]

    @property
    def folder(self) -> Path:
        """Where its first run is."""
        return self.runs[0].path.resolve()


def setting_runs(
    runs: Sequence[RecordedRun], labels: Mapping[Path, str] | None = None
) -> list[SettingRuns]:
    """Group runs into settings, in order of first appearance.

    Arguments:
        runs: finished or not.
        labels: names of settings by run directory; a run without one is called as its study or its policy says.
    """
    names: dict[Path, str] = {}
    for path, label in (labels or {}).items():
        names[path.resolve()] = label

    members: dict[tuple[str, str], list[RecordedRun]] = {}
    for run in runs:
        # The configuration first: it says what is wrong with itself.
        values = json.dumps(flat_config(run), sort_keys=True)
        name = names.get(run.path.resolve(), run.label)
        members.setdefault((name, values), []).append(run)

    found: list[SettingRuns] = []
    for (name, _), own in members.items():
        setting = SettingRuns(
            label=printable(name),
            config=own[0].config,
            values=flat_config(own[0]),
            runs=tuple(own),
        )
        found.append(setting)
    labelled = [
        replace(setting, label=_full_label(setting, found)) for setting in found
    ]
    return [
        replace(setting, label=_unique_label(setting, labelled)) for setting in labelled
    ]


def flat_config(run: RecordedRun) -> dict[str, Any]:
    """The configuration with its defaults as dotted keys, without those that do not make a setting."""
    config = comparable(run.config)
    tables = config.model_dump()

    flat: dict[str, Any] = {}
    for table, keys in tables.items():
        if table in IGNORED or keys is None:  # [faults] may be left out
            continue
        if table == LocalSection.table and not tells_local(run):
            continue
        if not isinstance(keys, dict):  # a key at the top of the file
            flat[table] = keys
            continue
        for key, value in keys.items():
            flat[f"{table}.{key}"] = value
    return flat


def differing_keys(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys that do not have one value in all of these configurations."""
    every = list(configs)
    keys: dict[str, None] = {}  # in the order in which they appear
    for config in every:
        keys.update(dict.fromkeys(config))

    differing: list[str] = []
    for key in keys:
        # A key that one of them lacks is None there, and so differs.
        first = every[0].get(key)
        if any(config.get(key) != first for config in every):
            differing.append(key)
    return differing


def shown_value(value: Any) -> str:
    """A configuration's value in a label."""
    if value is None:
        return "default"
    if isinstance(value, str):
        return printable(value)
    return printable(json.dumps(value, ensure_ascii=False))


def _full_label(setting: SettingRuns, every: Sequence[SettingRuns]) -> str:
    """The name, with the keys in which the setting differs from others of that name."""
    namesakes = [other.values for other in every if other.label == setting.label]
    label = setting.label
    for key in differing_keys(namesakes):
        # A key that another rule has, and this one has not, says nothing of this one.
        if key not in setting.values or is_hash(key):
            continue
        value = shown_value(setting.values[key])
        label += f" {key}={value}"
    return label


def is_hash(key: str) -> bool:
    """Whether a key's value is a digest, which no reader can read."""
    return key.endswith("sha256")


def _unique_label(setting: SettingRuns, every: Sequence[SettingRuns]) -> str:
    """The name, with its folder where it differs from another of that name in no readable value."""
    namesakes = [other for other in every if other.label == setting.label]
    if len(namesakes) == 1:
        return setting.label

    folders = [other.folder for other in namesakes]
    above = os.path.commonpath(folders)
    place = os.path.relpath(setting.folder, above)
    text = printable(place)
    return f"{setting.label} ({text})"
