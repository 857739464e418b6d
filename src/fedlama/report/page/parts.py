"""The parts of the page that are words and tables, as its template reads them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.fairness import fairness
from fedlama.report.numbers.round_times import round_times
from fedlama.report.numbers.settings import flat_config, shown_value
from fedlama.report.pictures.charts import Chart
from fedlama.report.pictures.fairness import fairness_chart
from fedlama.report.pictures.style import colour_number
from fedlama.report.tables.fairness import FAIRNESS_HEADINGS, fairness_rows
from fedlama.report.tables.layers import LayerTable, layer_table
from fedlama.report.tables.settings import cells
from fedlama.report.words.fairness import fairness_sentence
from fedlama.report.words.formats import unbroken
from fedlama.report.words.notes import progress_text, shown_cost
from fedlama.report.words.units import duration_text
from fedlama.run.directory import SUMMARY
from fedlama.run.toml import to_toml

# What a reader asks first about an experiment, where all settings agree on it.
FACTS = {
    "data.name": "data",
    "model.name": "model",
    "partition.kind": "partition",
    "partition.alpha": "α",
    "partition.clients": "clients",
    "participation.active": "active",
    "local.learning_rate": "learning rate",
    "local.batch_size": "batch size",
    "train.iterations": "steps",
}


@dataclass(frozen=True)
class SettingRow:
    """A row of the main table."""

    label: str
    numbers: list[str]
    colour: int
    cost: float  # the length of its bar in percent
    progress: str  # of an unfinished setting


@dataclass(frozen=True)
class LayerSection:
    """The table of layers, with the settings above its columns."""

    settings: list[tuple[str, int]]  # label and colour
    table: LayerTable


@dataclass(frozen=True)
class NetworkSection:
    """The replay: what it takes for granted, what came of it, and whether the network is our own choice."""

    assumptions: list[str]
    sentences: list[str]
    headings: Sequence[str]
    rows: list[tuple[int, str, list[str]]]  # colour, label and numbers
    chart: Chart | None
    ratio: str  # downlink / uplink
    assumed: bool


@dataclass(frozen=True)
class FairnessSection:
    """The clients one by one: whose samples they were judged by, a table, and the chart of all of them."""

    sentence: str
    headings: Sequence[str]
    rows: list[tuple[int, str, list[str]]]  # colour, label and numbers
    chart: Chart | None


@dataclass(frozen=True)
class Configuration:
    """A setting's configuration, with the versions and folders of its runs."""

    label: str
    toml: str
    seeds: str
    versions: list[str]
    when: str  # when it was finished, and how long a run took
    folders: list[str]


def facts(comparison: RunComparison) -> list[tuple[str, str]]:
    """What all settings share: name and value."""
    configs = [flat_config(setting.runs[0]) for setting in comparison.settings]
    shared: list[tuple[str, str]] = []
    for key, name in FACTS.items():
        first, *others = [config.get(key) for config in configs]
        if first is None:
            continue
        is_shared = all(value == first for value in others)
        if is_shared:
            text = shown_value(first)
            shared.append((name, text))
    shared += _circumstances(comparison)
    return shared


def _circumstances(comparison: RunComparison) -> list[tuple[str, str]]:
    """When the last run was finished, how long a run took, and on which type of machine."""
    days: list[str] = []
    seconds: list[float] = []
    machines: dict[str, None] = {}  # each once
    for setting in comparison.settings:
        day = finished_on(setting)
        if day is not None:
            days.append(day)
        if setting.seconds is not None:
            seconds.append(setting.seconds)
        versions = setting.config.versions
        machine = versions.get("cpu") or versions.get("machine")
        if machine:
            machines[shown_value(machine)] = None

    found: list[tuple[str, str]] = []
    if days:
        found.append(("finished", max(days)))
    if seconds:
        found.append(("a run took", _from_to(seconds)))
    if machines:
        every = ", ".join(machines)
        found.append(("machine", every))
    return found


def _from_to(seconds: Sequence[float]) -> str:
    shortest = duration_text(min(seconds))
    longest = duration_text(max(seconds))
    if shortest == longest:
        return shortest
    return f"{shortest} to {longest}"


def setting_row(setting: ComparedSetting, comparison: RunComparison) -> SettingRow:
    """One row of the main table.

    Arguments:
        setting: what the row is about.
        comparison: says which score counts and what the cost is a share of.
    """
    label, *numbers = [unbroken(cell) for cell in cells(setting, comparison)]
    cost = shown_cost(setting, comparison) or 0.0
    progress = ""
    if not setting.finished:
        progress = f"unfinished, {progress_text(setting)}"
    return SettingRow(
        label=label,
        numbers=numbers,
        colour=colour_number(setting.look),
        cost=min(100.0, round(100 * cost, 2)),
        progress=progress,
    )


def layer_section(comparison: RunComparison) -> LayerSection:
    """The table of layers."""
    settings: list[tuple[str, int]] = []
    for setting in comparison.settings:
        own = colour_number(setting.look)
        settings.append((setting.label, own))
    return LayerSection(
        settings=settings,
        table=layer_table(comparison),
    )


def fairness_section(comparison: RunComparison) -> FairnessSection | None:
    """How clients fare by themselves; None where that was not evaluated."""
    found = fairness(comparison)
    if not found:
        return None

    rows: list[tuple[int, str, list[str]]] = []
    for row in fairness_rows(found, comparison):
        numbers = [unbroken(number) for number in row.numbers]
        rows.append((colour_number(row.look), row.label, numbers))
    return FairnessSection(
        sentence=fairness_sentence(found),
        headings=FAIRNESS_HEADINGS,
        rows=rows,
        chart=fairness_chart(found, comparison),
    )


def configuration(setting: ComparedSetting, out: Path) -> Configuration:
    """A setting's configuration, for readers who want to repeat it.

    Arguments:
        setting: the setting.
        out: the folder of the page; runs are named by their way from it.
    """
    shown: dict[str, Any] = {}
    for name, value in setting.runs[0].tables.items():
        if name not in ("seed", "versions"):
            shown[name] = value

    versions: dict[str, None] = {}  # each once
    for run in setting.runs:
        text = _versions_text(run.config.versions)
        if text:
            versions[text] = None

    return Configuration(
        label=setting.label,
        toml=to_toml(shown).strip(),
        seeds=", ".join(map(str, setting.seeds)),
        versions=list(versions),
        when=when_text(setting),
        folders=[os.path.relpath(run.path, out) for run in setting.runs],
    )


def finished_on(setting: ComparedSetting) -> str | None:
    """The day on which the last run's summary was written, in UTC; None of an unfinished setting."""
    times: list[float] = []
    for run in setting.runs:
        summary = run.path / SUMMARY
        if summary.is_file():
            times.append(summary.stat().st_mtime)
    if not setting.finished or not times:
        return None
    return time.strftime("%Y-%m-%d", time.gmtime(max(times)))


def when_text(setting: ComparedSetting) -> str:
    """The day on which the last run was finished, and how long it took; empty of an unfinished setting.

    Arguments:
        setting: the setting.
    """
    day = finished_on(setting)
    if day is None:
        return ""
    if setting.seconds is None:
        return f"Finished {day}."
    text = f"Finished {day}; a run took {duration_text(setting.seconds)}."
    times = round_times(setting.runs)
    if times is not None:
        middle = duration_text(times.median)
        longest = duration_text(times.longest)
        text += f" A round took {middle} (median), the longest {longest}."
    return text


def _versions_text(versions: Mapping[str, str]) -> str:
    parts = [f"{name} {version}" for name, version in versions.items()]
    return ", ".join(parts)
