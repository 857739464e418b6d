"""The paper's tables and figures as packaged studies: `recipes/*.toml`, at its scale or at that of two cores."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from fedlama.base import InputError
from fedlama.data import catalog
from fedlama.run.config import Config, Positive, merged
from fedlama.run.sections import Section
from fedlama.study.study_file import Study, parse_study

TABLES = tuple(f"table{number}" for number in range(1, 13))
FIGURES = tuple(f"figure{number}" for number in range(1, 7))
SCALES = ("cpu", "paper")
ACTIVE_ON_CPU = 4
PAPER_SEEDS = [0, 1, 2]

# What is true of every table of the paper, and what is done here instead
REMARKS = (
    "Algorithm 2 is misprinted (δ < λ always holds); here layers are lengthened up to the crossing of δ and 1 − λ.",
    "Its accuracies are the largest over ranks of local models; here the averaged model is tested.",
    "It draws clients anew every φτ' steps, so FedAvg more often than FedLAMA; here all settings have the same ones.",
)

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
    cpu_alpha: float | None = None
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
    """What the tables on one data set have in common."""

    title: str
    sources: list[str]
    paper: dict[str, Any]
    cpu: dict[str, Any]
    pilot: dict[str, Any]


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


def reproduction(name: str, scale: str, group: int | None = None) -> Reproduction:
    """The named table or figure at a scale, or only one of its groups, counted from 1."""
    made = _reproduction(name, scale)
    if group is None:
        return made
    if group > len(made.panels):
        raise InputError(f"--group {group}: {name} has {len(made.panels)} groups")
    title = f"{made.title}, group {group} of {len(made.panels)}"
    return replace(made, title=title, panels=made.panels[group - 1 : group], group=group)


def _reproduction(name: str, scale: str) -> Reproduction:
    if name not in (*TABLES, *FIGURES):
        near = get_close_matches(name, (*TABLES, *FIGURES), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"there is no {name!r} in the paper{hint} (table1 … table12, figure1 … figure6)")
    if scale not in SCALES:
        raise InputError(f"--scale {scale!r}: must be one of {', '.join(SCALES)}")
    if name in TABLES:
        table = table_recipe(name)
        panels = tuple(_panel(name, number, scale) for number in range(len(table.group)))
        return Reproduction(name, table.title, scale, panels, (*table.remarks, *REMARKS))
    figure = FigureRecipe.model_validate(_read(name))
    panels = tuple(_panel(place.table, place.group, scale) for place in figure.panel)
    remarks = [remark for place in figure.panel for remark in table_recipe(place.table).remarks]
    return Reproduction(name, figure.title, scale, panels, (*dict.fromkeys(remarks), *REMARKS), figure.draw)


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


def _panel(table: str, number: int, scale: str) -> Panel:
    recipe = table_recipe(table)
    group, common = recipe.group[number], scale_of(recipe.data)
    source = _source(common)
    base = _paper_base(recipe, group, common) if scale == "paper" else _cpu_base(recipe, group, common)
    base = merged(base, {"data": {"name": source}})
    study = parse_study({**base, "study": _study(group, common, scale)}, f"{table}, group {number + 1}")
    window = study.settings[0].config.participation.window
    alpha = _alpha(group, scale)
    spread = "natural" if recipe.data == "femnist" else "iid" if alpha is None else f"dirichlet{alpha:g}"
    shared = f"{source}-{spread}-active{group.active:g}-window{window}"
    return Panel(
        title=_title(common, group, scale, study.settings[0].config),
        folder=shared if scale == "cpu" else f"{table}/{shared}",  # the paper's learning rates differ between tables
        study=study,
        rows=tuple(group.rows),
        scaled=tuple(_scaled(recipe, group, common, source, study) if scale == "cpu" else _stand_in(common, source)),
    )


def _source(common: Scale) -> str:
    """The first of the data sets that is there; the first of all, whose absence is then explained, if none is."""
    there = {entry.name for entry in catalog() if entry.present}
    return next((name for name in common.sources if name in there), common.sources[0])


def _alpha(group: Group, scale: str) -> float | None:
    return group.cpu_alpha if scale == "cpu" and group.cpu_alpha is not None else group.alpha


def _partition(recipe: TableRecipe, alpha: float | None) -> dict[str, Any]:
    if recipe.data == "femnist":
        return {"kind": "natural"}
    return {"kind": "iid"} if alpha is None else {"kind": "dirichlet", "alpha": alpha}


def _paper_base(recipe: TableRecipe, group: Group, common: Scale) -> dict[str, Any]:
    own = {
        "partition": _partition(recipe, group.alpha),
        "participation": {"active": group.active},
        "train": {"iterations": recipe.iterations},
    }
    return merged(common.paper, own)


def _cpu_base(recipe: TableRecipe, group: Group, common: Scale) -> dict[str, Any]:
    clients = round(ACTIVE_ON_CPU / group.active)
    own = {
        "partition": {**_partition(recipe, _alpha(group, "cpu")), "clients": clients},
        "participation": {"active": ACTIVE_ON_CPU},
    }
    return merged(common.cpu, own)


def _study(group: Group, common: Scale, scale: str) -> dict[str, Any]:
    settings = [{"name": row.name, "policy": row.policy(), **_rate(row, scale)} for row in group.rows]
    longest = max(row.interval * row.factor for row in group.rows)
    options = {"baseline": group.rows[0].name, "setting": settings}
    if scale == "paper":
        return {**options, "seeds": PAPER_SEEDS}
    between = [interval for interval in group.between if interval < longest]
    return {**options, **common.pilot, "seeds": list(range(group.seeds)), "fedavg_intervals": between}


def _rate(row: Row, scale: str) -> dict[str, Any]:
    """The paper's own learning rate; at the scale of two cores another one is best, and pilots find it."""
    return {"local": {"learning_rate": row.rate}} if scale == "paper" else {}


def _title(common: Scale, group: Group, scale: str, config: Config) -> str:
    """What a picture by itself must say: the paper's group, and what stands in for its data, model or α."""
    own = (config.data.name, config.model.name)
    others = [name for name, meant in zip(own, _meant(common), strict=True) if name != meant]
    instead = f" (here {', '.join(map(str, others))})" if others else ""
    here = "" if _alpha(group, scale) == group.alpha else f" (here {group.cpu_alpha:g})"
    natural = common.paper.get("partition", {}).get("kind") == "natural"
    fell = "" if natural else ", IID" if group.alpha is None else f", α = {group.alpha:g}{here}"
    return f"{common.title}{instead}, {group.active:.0%} active{fell}".replace("%", " %")


def _meant(common: Scale) -> tuple[str, str]:
    """The paper's data set and model."""
    return common.sources[0], common.paper["model"]["name"]


def _scaled(recipe: TableRecipe, group: Group, common: Scale, source: str, study: Study) -> list[str]:
    config = study.settings[0].config
    clients = round(ACTIVE_ON_CPU / group.active)
    rates = ", ".join(f"{rate:g}" for rate in study.options.learning_rates)
    found = [
        f"{ACTIVE_ON_CPU} of {clients} clients in place of {round(128 * group.active)} of 128",
        f"{config.train.iterations:,} steps in place of {recipe.iterations:,}",
        f"a learning rate for each setting out of {rates}, from a pilot of {study.options.pilot_iterations} steps on a "
        f"validation split, and no warm-up",
        "one seed" if group.seeds == 1 else f"{group.seeds} seeds",
    ]
    if group.cpu_alpha is not None:
        twin = any(one.alpha == group.cpu_alpha and one.active == group.active for one in recipe.group)
        same = ", which makes these the runs of the group above or below at that α" if twin else ""
        found.append(f"α = {group.cpu_alpha:g} in place of {group.alpha:g}{same}")
    _, model = _meant(common)
    if config.model.name != model:
        found.append(f"the model {config.model.name} in place of {model}")
    return [*found, *_stand_in(common, source)]


def _stand_in(common: Scale, source: str) -> list[str]:
    return [] if source == common.sources[0] else [f"the data set {source} in place of {common.sources[0]}"]
