"""The paper's tables and figures as packaged studies: `recipes/*.toml`, at its scale or at that of two cores."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from fedlama.base import InputError
from fedlama.data import catalog
from fedlama.run.config import Config, Positive, merged
from fedlama.run.resolve import load_data
from fedlama.run.sections import Section
from fedlama.study.study_file import Study, parse_study

TABLES = tuple(f"table{number}" for number in range(1, 13))
FIGURES = tuple(f"figure{number}" for number in range(1, 7))
SCALES = ("cpu", "paper")
PAPER_CLIENTS = 128
PAPER_SEEDS = [0, 1, 2]
DECAY_AT = (Fraction(1, 2), Fraction(3, 4))  # of the run; there the learning rate is divided by 10

# What is true of every table of the paper, and what is done here instead
REMARKS = (
    "Algorithm 2 is misprinted (δ < λ always holds); here layers are lengthened up to the crossing of δ and 1 − λ.",
    "Its accuracies are the largest over ranks of local models; here the averaged model is tested.",
    "It draws clients anew every φτ' steps, so FedAvg more often than FedLAMA; here all settings have the same ones.",
)
DECAY_REMARK = (
    "It says nothing of a decay; the released code divides the learning rate by 10 at fixed rounds. Here it is divided "
    "at half and at three quarters of the run."
)
NO_DECAY_REMARK = "The released code divides the learning rate by 10 at fixed rounds; here it stays as it is."

Draw = Literal["crossing", "aggregations", "sizes", "curves"]


class Row(Section):
    """A line of one of the paper's tables: a setting and what the paper reports for it, in per cent."""

    interval: Positive
    factor: Positive = 1
    rate: float
    accuracy: float
    spread: float
    cost: float | None = None

    @property
    def name(self) -> str:
        """The setting as the paper's figures call it."""
        return f"FedAvg({self.interval})" if self.factor == 1 else f"FedLAMA({self.interval}, {self.factor})"

    def policy(self) -> dict[str, Any]:
        """The same as a configuration has it."""
        if self.factor == 1:
            return {"kind": "fedavg", "base_interval": self.interval}
        return {"kind": "fedlama", "base_interval": self.interval, "increase_factor": self.factor}


class Group(Section):
    """Lines that share everything but the policy: one study."""

    active: float
    alpha: float | None = None
    seeds: Positive = 1
    between: list[Positive] = Field(default=[])
    rows: list[Row]


class TableRecipe(Section):
    """One of the paper's tables, and what is wrong with it."""

    title: str
    data: str
    iterations: Positive
    remarks: list[str] = Field(default=[])
    group: list[Group]


class Place(Section):
    """Which group of which table a panel of a figure is drawn from."""

    table: str
    group: int


class FigureRecipe(Section):
    """One of the paper's figures: what is drawn, from the groups of tables."""

    title: str
    draw: Draw
    panel: list[Place]


class Scale(Section):
    """What the tables on one data set have in common.

    `samples` is how many training samples the whole set has, where a part of it may stand in. At the scale cpu,
    `cpu_model` is what the smaller model is called, `cpu_alpha` the smallest α, `cpu_rate` where the rate is from.
    """

    title: str
    sources: list[str]
    samples: Positive | None = None
    cpu_model: str | None = None
    cpu_alpha: float = 0.0
    cpu_rate: str
    paper: dict[str, Any]
    cpu: dict[str, Any]
    pilot: dict[str, Any]


@dataclass(frozen=True)
class Changes:
    """What the user wants otherwise than the recipe has it.

    iterations: steps of every run; None: the recipe's.
    decay: whether the learning rate is divided by 10 at half and at three quarters of the run.
    pilots: whether pilots choose a learning rate for each setting, in place of the recipe's.
    """

    iterations: int | None = None
    decay: bool = True
    pilots: bool = False

    def folder(self, scale: str) -> str:
        """Where such runs are written by default: apart from those of the recipe, which are others."""
        parts = [scale]
        if self.iterations is not None:
            parts.append(f"{self.iterations}-steps")
        if not self.decay:
            parts.append("no-decay")
        if self.pilots:
            parts.append("pilots")
        return "-".join(parts)


@dataclass(frozen=True)
class Panel:
    """One group at one scale: a study, the folder it is written to, the paper's lines, and what was scaled down."""

    title: str
    folder: str
    study: Study
    rows: tuple[Row, ...]
    scaled: tuple[str, ...]


@dataclass(frozen=True)
class Reproduction:
    """A table or figure, ready to be run; `draw` is None for a table."""

    name: str
    title: str
    scale: str
    panels: tuple[Panel, ...]
    remarks: tuple[str, ...]
    draw: Draw | None = None
    group: int | None = None

    @property
    def file_name(self) -> str:
        """What its table is called on disk."""
        return self.name if self.group is None else f"{self.name}-group{self.group}"


def reproduction(name: str, scale: str, group: int | None = None, changes: Changes | None = None) -> Reproduction:
    """The named table or figure at a scale.

    name: `table1` … `table12` or `figure1` … `figure6`.
    scale: `cpu` or `paper`.
    group: only this group of its lines, counted from 1.
    changes: what is wanted otherwise than the recipe has it.
    """
    made = _reproduction(name, scale, changes or Changes())
    if group is None:
        return made
    groups = len(made.panels)
    if group > groups:
        raise InputError(f"--group {group}: {name} has {groups} groups")
    return replace(
        made,
        title=f"{made.title}, group {group} of {groups}",
        panels=(made.panels[group - 1],),
        group=group,
    )


def _reproduction(name: str, scale: str, changes: Changes) -> Reproduction:
    _check(name, scale, changes)
    general = [*REMARKS]
    general.append(DECAY_REMARK if changes.decay else NO_DECAY_REMARK)
    if name in TABLES:
        table = table_recipe(name)
        places = [Place(table=name, group=number) for number in range(len(table.group))]
        title, draw = table.title, None
    else:
        figure = FigureRecipe.model_validate(_read(name))
        places = figure.panel
        title, draw = figure.title, figure.draw
    panels: list[Panel] = []
    remarks: list[str] = []
    for place in places:
        panels.append(_panel(place, scale, changes))
        remarks += table_recipe(place.table).remarks
    return Reproduction(
        name=name,
        title=title,
        scale=scale,
        panels=tuple(panels),
        remarks=(*dict.fromkeys(remarks), *general),
        draw=draw,
    )


def _check(name: str, scale: str, changes: Changes) -> None:
    known = (*TABLES, *FIGURES)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"there is no {name!r} in the paper{hint} (table1 … table12, figure1 … figure6)")
    if scale not in SCALES:
        raise InputError(f"--scale {scale!r}: must be one of {', '.join(SCALES)}")
    if scale == "paper" and changes.pilots:
        raise InputError("--pilots: the scale 'paper' has the paper's learning rates; pilots are for --scale cpu")


@cache
def table_recipe(name: str) -> TableRecipe:
    """One of the packaged tables."""
    return TableRecipe.model_validate(_read(name))


@cache
def scale_of(data: str) -> Scale:
    """The configurations for a data set."""
    return Scale.model_validate(_read("scales")[data])


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("fedlama.paper") / "recipes" / f"{name}.toml").read_text(encoding="utf-8"))


def _panel(place: Place, scale: str, changes: Changes) -> Panel:
    recipe = table_recipe(place.table)
    group = recipe.group[place.group]
    common = scale_of(recipe.data)
    source = _source(common)
    tables = _base(recipe, group, scale, changes)
    tables = merged(tables, {"data": {"name": source}})
    tables["study"] = _study(group, common, scale, changes)
    study = parse_study(tables, f"{place.table}, group {place.group + 1}")
    config = study.settings[0].config
    scaled = _stand_ins(common, source)
    if scale == "cpu":
        scaled = _scaled(recipe, group, study, changes)
    return Panel(
        title=_title(common, group, scale, config),
        folder=_folder(place.table, group, scale, config),
        study=study,
        rows=tuple(group.rows),
        scaled=tuple(scaled),
    )


def _source(common: Scale) -> str:
    """The first of the data sets that is there; the first of all, whose absence is then explained, if none is."""
    present = _present()
    return next((name for name in common.sources if name in present), common.sources[0])


def _present() -> set[str]:
    return {entry.name for entry in catalog() if entry.present}


def _alpha(group: Group, common: Scale, scale: str) -> float | None:
    """The paper's α, or the smallest with which a small cohort learns."""
    if group.alpha is None or scale == "paper":
        return group.alpha
    return max(group.alpha, common.cpu_alpha)


def _partition(recipe: TableRecipe, alpha: float | None) -> dict[str, Any]:
    if recipe.data == "femnist":
        return {"kind": "natural"}
    if alpha is None:
        return {"kind": "iid"}
    return {"kind": "dirichlet", "alpha": alpha}


def _base(recipe: TableRecipe, group: Group, scale: str, changes: Changes) -> dict[str, Any]:
    """The configuration that a group's settings have in common."""
    common = scale_of(recipe.data)
    own: dict[str, Any] = {"partition": _partition(recipe, _alpha(group, common, scale))}
    if scale == "paper":
        shared = common.paper
        iterations = changes.iterations or recipe.iterations
        own["participation"] = {"active": group.active}
    else:
        shared = common.cpu
        iterations = changes.iterations or shared["train"]["iterations"]
    own["train"] = {"iterations": iterations}
    if changes.decay:
        own["local"] = {"decay_steps": [int(share * iterations) for share in DECAY_AT]}
    return merged(shared, own)


def _study(group: Group, common: Scale, scale: str, changes: Changes) -> dict[str, Any]:
    settings: list[dict[str, Any]] = []
    for row in group.rows:
        setting = {"name": row.name, "policy": row.policy()}
        settings.append(setting | _rate(row, scale))
    options: dict[str, Any] = {"baseline": group.rows[0].name, "setting": settings}
    if scale == "paper":
        options["seeds"] = PAPER_SEEDS
        return options
    options["seeds"] = list(range(group.seeds))
    options["fedavg_intervals"] = group.between
    if changes.pilots:
        options |= common.pilot
    return options


def _rate(row: Row, scale: str) -> dict[str, Any]:
    """The paper's own learning rate; with fewer clients another one is better, and the scale has it."""
    return {"local": {"learning_rate": row.rate}} if scale == "paper" else {}


def _folder(table: str, group: Group, scale: str, config: Config) -> str:
    """Tables and figures that need the same runs name the same folder."""
    partition = config.partition
    spread = partition.kind
    if partition.kind == "dirichlet":
        spread = f"dirichlet{partition.alpha:g}"
    window = config.participation.window
    if scale == "paper":  # its learning rates differ between tables
        return f"{table}/{config.data.name}-{spread}-active{group.active:g}-window{window}"
    clients = partition.clients or "all"
    return f"{config.data.name}-{spread}-{config.participation.active}of{clients}-window{window}"


def _title(common: Scale, group: Group, scale: str, config: Config) -> str:
    """What a picture by itself must say: the paper's group, and what stands in for its data, model, clients or α."""
    others: list[str] = []
    if config.data.name != common.sources[0]:
        others.append(config.data.name)
    if scale == "cpu" and common.cpu_model is not None:
        others.append(common.cpu_model)
    part = _part_of_the_data(common, config.data.name)
    if part is not None:
        others.append(part)
    instead = f" (here {', '.join(others)})" if others else ""
    active = f"{group.active:.0%} active"
    if scale == "cpu":
        active += f" (here {_cohort(config)})"
    fell = ""
    alpha = _alpha(group, common, scale)
    if group.alpha is not None:
        here = "" if alpha == group.alpha else f" (here {alpha:g})"
        fell = f", α = {group.alpha:g}{here}"
    elif config.partition.kind == "iid":
        fell = ", IID"
    return f"{common.title}{instead}, {active}{fell}".replace("%", " %")


def _cohort(config: Config) -> str:
    if config.partition.clients is None:
        return f"{config.participation.active} of all writers"
    return f"{config.participation.active} of {config.partition.clients}"


def _part_of_the_data(common: Scale, source: str) -> str | None:
    """What to say of a set of which only some training samples are there."""
    if common.samples is None or source not in _present():
        return None
    there = len(load_data(source).x_train)
    if there == common.samples:
        return None
    return f"{there:,} of the {common.samples:,} training samples"


def _scaled(recipe: TableRecipe, group: Group, study: Study, changes: Changes) -> list[str]:
    """What differs from the paper at the scale of two cores."""
    common = scale_of(recipe.data)
    config = study.settings[0].config
    papers_cohort = f"{round(PAPER_CLIENTS * group.active)} of {PAPER_CLIENTS}"
    if group.active == 1:
        papers_cohort = f"all {PAPER_CLIENTS}"
    found = [
        f"{_cohort(config)} clients train at a time, in place of {papers_cohort}",
        f"{config.train.iterations:,} steps in place of {recipe.iterations:,}",
        _rates(study, common, changes),
        "no warm-up",
        "one seed" if group.seeds == 1 else f"{group.seeds} seeds",
    ]
    alpha = _alpha(group, common, "cpu")
    if alpha != group.alpha:
        found.append(f"α = {alpha:g} in place of {group.alpha:g}")
    alphas = [_alpha(one, common, "cpu") for one in recipe.group]
    if alphas.count(alpha) > 1:
        found.append("these are also the runs of the table's other groups that differ only in what was scaled down")
    if common.cpu_model is not None:
        found.append(f"the model {common.cpu_model} in place of {common.paper['model']['name']}")
    return [*found, *_stand_ins(common, config.data.name)]


def _rates(study: Study, common: Scale, changes: Changes) -> str:
    options = study.options
    if not changes.pilots:
        rate = study.settings[0].config.local.learning_rate
        return f"learning rate {rate:g} for every setting, {common.cpu_rate}"
    rates = ", ".join(f"{rate:g}" for rate in options.learning_rates)
    return (
        f"a learning rate for each setting out of {rates}, from a pilot of {options.pilot_iterations} steps on a "
        f"validation split"
    )


def _stand_ins(common: Scale, source: str) -> list[str]:
    found: list[str] = []
    if source != common.sources[0]:
        found.append(f"the data set {source} in place of {common.sources[0]}")
    part = _part_of_the_data(common, source)
    if part is not None:
        found.append(part)
    return found
