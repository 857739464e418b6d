"""A study as a file: a base configuration, settings that override it, and seeds. Here it is only read and expanded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedlama.base import InputError, printable, shown
from fedlama.run.config import parse_config
from fedlama.run.importing import make_importable
from fedlama.run.labels import default_name
from fedlama.run.messages import explain
from fedlama.run.overrides import merged
from fedlama.run.sections import Section
from fedlama.run.toml import read_toml
from fedlama.study.settings import (
    PILOTS,
    Rates,
    Seeds,
    Setting,
    Study,
    StudySection,
)

MAX_NAME = 200  # characters
# What a study writes beside its settings' folders, without the endings
OWN_FILES = ("report", "table", "study")


class SettingSection(Section):
    """[[study.setting]] What is the setting's own: everything else in it overrides the configuration."""

    name: str | None = None
    seeds: Seeds
    learning_rates: Rates


class StudyFile(Section):
    """The part of a study file that is not a configuration."""

    study: StudySection


def load_study(path: Path) -> Study:
    """The study in a file; modules beside it can be imported from now on."""
    tables = read_toml(path)
    make_importable(path.parent)
    return parse_study(tables, str(path))


def parse_study(tables: Mapping[str, Any], source: str = "study") -> Study:
    """A study from nested tables; what is wrong is said in one or two lines."""
    base = {key: value for key, value in tables.items() if key != "study"}
    if "study" not in tables:
        raise InputError(
            f"{source}: a study needs a [study] table and [[study.setting]] tables"
        )
    options = _options(tables, source)

    overrides = list(options.setting)
    for interval in dict.fromkeys(options.fedavg_intervals):  # once each
        fedavg = {"kind": "fedavg", "base_interval": interval}
        overrides.append({"policy": fedavg})
    if not overrides:
        raise InputError(f"{source}: a study needs at least one [[study.setting]]")

    settings: list[Setting] = []
    for number, own in enumerate(overrides, start=1):
        where = f"{source}, setting {number}"
        setting = _setting(base, own, options, where)
        settings.append(setting)

    settings = _without_repeats(settings, len(options.setting))
    settings = _one_window(settings)
    check_names(settings, options, source)
    return Study(tuple(settings), options)


def _options(tables: Mapping[str, Any], source: str) -> StudySection:
    """What the table [study] says, checked."""
    table = tables["study"]
    if isinstance(table, Mapping) and isinstance(table.get("setting"), Mapping):
        raise InputError(
            f"{source}: write [[study.setting]] with double brackets: a study has several settings"
        )
    try:
        checked = StudyFile.model_validate({"study": table})
    except ValidationError as error:
        lines = explain(error, StudyFile, tables, source)
        raise InputError(*lines) from None
    return checked.study


def _setting(
    base: Mapping[str, Any], own: Mapping[str, Any], options: StudySection, source: str
) -> Setting:
    # What a setting leaves out is as the study has it.
    keys: dict[str, Any] = {
        "seeds": options.seeds,
        "learning_rates": options.learning_rates,
    }
    overrides: dict[str, Any] = {}
    for key, value in own.items():
        if key in SettingSection.model_fields:
            keys[key] = value
        else:
            overrides[key] = value
    try:
        checked = SettingSection.model_validate(keys)
    except ValidationError as error:
        lines = explain(error, SettingSection, own, source)
        raise InputError(*lines) from None

    tables = merged(base, overrides)
    config = parse_config(tables, source)

    rates = tuple(sorted(set(checked.learning_rates)))
    # A setting that fixes its learning rate has none to choose.
    is_fixed = "learning_rate" in overrides.get("local", {})
    if is_fixed and "learning_rates" not in own:
        rates = ()
    return Setting(
        name=checked.name or default_name(config),
        config=config.model_copy(update={"seed": checked.seeds[0]}),
        seeds=tuple(dict.fromkeys(checked.seeds)),
        learning_rates=rates,
    )


def _without_repeats(settings: Sequence[Setting], named: int) -> list[Setting]:
    """An interval that is added to draw the frontier may be among the settings already."""
    kept = list(settings[:named])
    known = {setting.name for setting in kept}
    added = settings[named:]
    # One that is listed twice is refused with the names.
    for setting in added:
        if setting.name not in known:
            kept.append(setting)
    return kept


def _one_window(settings: Sequence[Setting]) -> list[Setting]:
    """Who trains must not depend on the policy: unless the file says otherwise, a cohort stays for the least common
    multiple of all settings' cycles."""
    cycles: list[int] = []
    for setting in settings:
        policy = setting.config.policy.build()
        cycle = policy.longest_cycle
        cycles.append(cycle)

    steps = math.lcm(*cycles)
    return [_with_window(setting, steps) for setting in settings]


def _with_window(setting: Setting, steps: int) -> Setting:
    """The setting with this window, unless it has one."""
    config = setting.config
    if config.participation.window is not None:
        return setting

    participation = config.participation.model_copy(update={"window": steps})
    config = config.model_copy(update={"participation": participation})
    return replace(setting, config=config)


def check_names(
    settings: Sequence[Setting], options: StudySection, source: str
) -> None:
    """Names are printed, and become folders: each prints, and has a folder of its own."""
    owners: dict[str, Setting] = {}
    for setting in settings:
        _check_name(setting, source)
        other = owners.setdefault(setting.folder, setting)
        if other is setting:
            continue
        if other.name == setting.name:
            raise InputError(
                f'{source}: two settings are called {printable(setting.name)}: give each a name = "…" of its own'
            )
        raise InputError(
            f"{source}: the settings {shown(other.name)} and {shown(setting.name)} would share the folder "
            f'{setting.folder}: give one of them another name = "…"'
        )

    baseline = options.baseline
    names = [setting.name for setting in settings]
    if baseline is not None and baseline not in names:
        listed = ", ".join(names)
        raise InputError(
            f"{source}: study.baseline = {shown(baseline)} is no setting; there are {listed}"
        )


def _check_name(setting: Setting, source: str) -> None:
    name = setting.name
    if not name.isprintable():
        raise InputError(
            f"{source}: the setting's name {shown(name)} holds characters that do not print"
        )
    if len(name) > MAX_NAME:
        raise InputError(
            f"{source}: the setting's name {shown(name)} has {len(name):,} characters; {MAX_NAME} are allowed"
        )
    if setting.folder == PILOTS:
        raise InputError(
            f"{source}: a setting cannot be called pilots: that folder holds the runs for learning rates"
        )
    stem, dot, _ = setting.folder.partition(".")
    if dot and stem in OWN_FILES:
        raise InputError(
            f"{source}: a setting cannot be called {name}: the study's folder has a file of its own by such a name"
        )
