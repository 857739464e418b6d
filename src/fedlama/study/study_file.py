"""A study as a file: a base configuration, settings that override it, and seeds. Here it is only read and expanded."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from fedlama.base import MAX_SEED, InputError, printable, shown
from fedlama.run.config import Config, parse_config
from fedlama.run.messages import explain
from fedlama.run.overrides import merged
from fedlama.run.references import make_importable
from fedlama.run.resolve import Resolved
from fedlama.run.sections import Section
from fedlama.run.tables import Positive
from fedlama.run.toml import read_toml

Seeds = Annotated[list[Annotated[int, Field(ge=0, le=MAX_SEED)]], Field(min_length=1)]
Rates = list[Annotated[float, Field(gt=0)]]
# Of a setting; everything else in it overrides the configuration
OWN_KEYS = ("name", "seeds", "learning_rates")
MAX_NAME = 200  # characters
MAX_FOLDER = 120  # bytes: file systems admit 255
PILOTS = "pilots"
# What a study writes beside its settings' folders, without the endings
OWN_FILES = ("report", "table", "study")


class StudySection(Section):
    """[study] What is compared, over which seeds, and how learning rates are chosen."""

    seeds: Seeds = Field(default=[0, 1, 2])
    baseline: str | None = None
    learning_rates: Rates = Field(default=[])
    pilot_seeds: Seeds = Field(default=[0])
    pilot_iterations: Positive | None = None
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.1
    fedavg_intervals: list[Positive] = Field(default=[])
    setting: list[dict[str, Any]] = Field(default=[])


class StudyFile(Section):
    """The part of a study file that is not a configuration."""

    study: StudySection


@dataclass(frozen=True)
class Setting:
    """One row of the study's table; `config` has the first of its seeds, and no learning rate chosen yet."""

    name: str
    config: Config
    seeds: tuple[int, ...]
    learning_rates: tuple[float, ...]  # to choose among; empty: the configuration's own
    # Of a study in Python: the first seed's run, built already
    planned: Resolved | None = None

    @property
    def folder(self) -> str:
        """The name as a folder's: FedLAMA(6, 4) is fedlama-6-4. Letters of every script stay."""
        plain = unicodedata.normalize("NFKC", self.name).casefold()
        words_joined = re.sub(r"[^\w.]+|_+", "-", plain)
        folder = words_joined.strip("-.") or "setting"
        content = folder.encode("utf-8")
        if len(content) <= MAX_FOLDER:
            return folder
        # Two long names may begin alike.
        start = content[: MAX_FOLDER - 20].decode("utf-8", "ignore")
        digest = hashlib.sha256(content).hexdigest()
        return f"{start}-{digest[:12]}"


@dataclass(frozen=True)
class Cell:
    """One run of a study: where it is written, and what it is for."""

    setting: str
    path: Path  # below the study's folder
    config: Config
    rate: float | None = None  # of a pilot: the learning rate that it tries
    planned: Resolved | None = None  # of a study in Python: the run, built already

    @property
    def label(self) -> str:
        """What a progress display calls it."""
        seed = f"seed {self.config.seed}"
        if self.rate is None:
            return f"{self.setting}, {seed}"
        return f"{self.setting}, pilot at {rate_text(self.rate)}, {seed}"


@dataclass(frozen=True)
class Study:
    """Settings with their seeds; `options` says how learning rates are chosen, `note` what a reader must know of it."""

    settings: tuple[Setting, ...]
    options: StudySection
    note: str | None = None

    def pilots(self) -> list[Cell]:
        """The runs that choose a learning rate: on a validation split, never on the test samples."""
        pilots: list[Cell] = []
        for setting in self.settings:
            for rate in setting.learning_rates:
                for seed in self.options.pilot_seeds:
                    pilots.append(self._pilot(setting, rate, seed))
        return pilots

    def cells(self, chosen: Mapping[str, float | None]) -> list[Cell]:
        """The runs of the table, at the learning rates that the pilots chose; first seeds come first."""
        most_seeds = max(len(setting.seeds) for setting in self.settings)
        cells: list[Cell] = []
        for number in range(most_seeds):
            for setting in self.settings:
                if number < len(setting.seeds):
                    seed = setting.seeds[number]
                    rate = chosen.get(setting.name)
                    cells.append(self._cell(setting, seed, rate))
        return cells

    def _pilot(self, setting: Setting, rate: float, seed: int) -> Cell:
        config = shortened(
            with_rate(setting.config, rate), self.options.pilot_iterations
        )
        iterations = config.train.iterations
        config = config.model_copy(
            update={
                "seed": seed,
                "data": config.data.model_copy(
                    update={"validation": self.options.validation}
                ),
                "train": config.train.model_copy(update={"evaluate_every": iterations}),
            }
        )
        path = Path(PILOTS) / setting.folder / f"rate{rate_text(rate)}" / f"seed{seed}"
        return Cell(setting.name, path, config, rate)

    def _cell(self, setting: Setting, seed: int, rate: float | None) -> Cell:
        config = setting.config.model_copy(update={"seed": seed})
        if rate is not None:
            config = with_rate(config, rate)
        path = Path(setting.folder) / f"seed{seed}"
        return Cell(setting.name, path, config)


def rate_text(rate: float) -> str:
    """A learning rate in as few digits as tell it from every other: rates that are equal in six digits are two."""
    short = f"{rate:g}"
    if float(short) == rate:
        return short
    return repr(rate)


def with_rate(config: Config, rate: float) -> Config:
    """The same configuration with another learning rate."""
    local = config.local.model_copy(update={"learning_rate": rate})
    return config.model_copy(update={"local": local})


def shortened(config: Config, iterations: int | None) -> Config:
    """The same configuration over at most so many steps; warm-up and decay come at the same shares of the run."""
    whole = config.train.iterations
    if iterations is None or iterations >= whole:
        return config
    schedule: dict[str, Any] = {}
    # A rule of the user's own may have no schedule.
    if hasattr(config.local, "warmup_steps"):
        schedule["warmup_steps"] = config.local.warmup_steps * iterations // whole
    if hasattr(config.local, "decay_steps"):
        schedule["decay_steps"] = [
            max(1, step * iterations // whole) for step in config.local.decay_steps
        ]
    return config.model_copy(
        update={
            "local": config.local.model_copy(update=schedule),
            "train": config.train.model_copy(update={"iterations": iterations}),
        }
    )


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
    own_table = tables["study"]
    if isinstance(own_table, Mapping) and isinstance(own_table.get("setting"), Mapping):
        raise InputError(
            f"{source}: write [[study.setting]] with double brackets: a study has several settings"
        )
    try:
        options = StudyFile.model_validate({"study": tables["study"]}).study
    except ValidationError as error:
        raise InputError(*explain(error, StudyFile, tables, source)) from None
    overrides = list(options.setting)
    for interval in options.fedavg_intervals:
        overrides.append({"policy": {"kind": "fedavg", "base_interval": interval}})
    if not overrides:
        raise InputError(f"{source}: a study needs at least one [[study.setting]]")
    settings: list[Setting] = []
    for number, own in enumerate(overrides, start=1):
        settings.append(_setting(base, own, options, f"{source}, setting {number}"))
    settings = _without_repeats(settings, len(options.setting))
    settings = _one_window(settings)
    check_names(settings, options, source)
    return Study(tuple(settings), options)


def _setting(
    base: Mapping[str, Any], own: Mapping[str, Any], options: StudySection, source: str
) -> Setting:
    overrides = {key: value for key, value in own.items() if key not in OWN_KEYS}
    try:
        checked = StudySection.model_validate(
            {
                "seeds": own.get("seeds", options.seeds),
                "learning_rates": own.get("learning_rates", options.learning_rates),
                "baseline": own.get("name"),
            }
        )
    except ValidationError as error:
        lines = explain(error, StudySection, own, source)
        raise InputError(
            *(line.replace("baseline", "name") for line in lines)
        ) from None
    config = parse_config(merged(base, overrides), source)
    fixed = (
        "learning_rate" in overrides.get("local", {}) and "learning_rates" not in own
    )
    return Setting(
        name=checked.baseline or config.policy.label,
        config=config.model_copy(update={"seed": checked.seeds[0]}),
        seeds=tuple(dict.fromkeys(checked.seeds)),
        learning_rates=() if fixed else tuple(sorted(set(checked.learning_rates))),
    )


def _without_repeats(settings: Sequence[Setting], named: int) -> list[Setting]:
    """An interval that is added to draw the frontier may be among the settings already."""
    kept = list(settings[:named])
    known = {setting.name for setting in kept}
    for setting in settings[named:]:
        if setting.name not in known:
            kept.append(setting)
    return kept


def _one_window(settings: Sequence[Setting]) -> list[Setting]:
    """Who trains must not depend on the policy: unless the file says otherwise, a cohort stays for the least common
    multiple of all settings' cycles."""
    cycles: list[int] = []
    for setting in settings:
        policy = setting.config.policy.build()
        cycles.append(policy.longest_cycle)
    steps = math.lcm(*cycles)
    return [_with_window(setting, steps) for setting in settings]


def _with_window(setting: Setting, steps: int) -> Setting:
    """The setting with this window, unless it has one."""
    config = setting.config
    if config.participation.window is not None:
        return setting
    participation = config.participation.model_copy(update={"window": steps})
    return replace(
        setting, config=config.model_copy(update={"participation": participation})
    )


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
    names = [setting.name for setting in settings]
    if options.baseline is not None and options.baseline not in names:
        raise InputError(
            f"{source}: study.baseline = {shown(options.baseline)} is no setting; there are {', '.join(names)}"
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
