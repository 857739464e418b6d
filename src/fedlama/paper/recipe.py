"""The packaged recipes, `recipes/*.toml`: what the paper prints, and the configurations for each data set."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from fedlama.base import Positive
from fedlama.data import catalog
from fedlama.run.sections import Section

TABLES = tuple(f"table{number}" for number in range(1, 13))
FIGURES = tuple(f"figure{number}" for number in range(1, 7))
FRONTIER = "frontier"

ScaleName = Literal["smoke", "cpu", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "cpu", "paper")

Draw = Literal["crossing", "aggregations", "sizes", "curves"]
DRAWN_FROM_SUMMARIES: tuple[Draw, ...] = ("aggregations", "sizes")


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
        if self.factor == 1:
            # Every layer at the same interval is FedAvg.
            return f"FedAvg({self.interval})"
        return f"FedLAMA({self.interval}, {self.factor})"

    @property
    def cycle(self) -> int:
        """Steps until every layer was averaged."""
        return self.interval * self.factor

    def policy(self) -> dict[str, Any]:
        """The same as a configuration has it."""
        if self.factor == 1:
            return {"kind": "fedavg", "base_interval": self.interval}
        return {
            "kind": "fedlama",
            "base_interval": self.interval,
            "increase_factor": self.factor,
        }


class TableGroup(Section):
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
    group: list[TableGroup]


class PanelSource(Section):
    """Which group of which table a panel of a figure is drawn from."""

    table: str
    group: int


class FigureRecipe(Section):
    """One of the paper's figures: what is drawn, from the groups of tables."""

    title: str
    draw: Draw
    panel: list[PanelSource]


class Scale(Section):
    """What the tables on one data set have in common.

    Arguments:
        title: The data and the model, as pictures name them.
        sources: The data set, and those that may stand in for it.
        shape: Of a sample: what a step takes can be measured without the data.
        classes: How many the samples have.
        tested: How many test samples there are.
        samples: How many training samples the whole set has, where a part of it may stand in.
        by_writer: Whether clients are those who wrote the samples.
        paper_model: What the paper's model is called.
        cpu_model: What the smaller model of the scale cpu is called.
        cpu_alpha: The smallest α of that scale.
        cpu_rate: Where its learning rate is from.
        paper: The configuration of the paper's scale.
        cpu: That of two cores.
        pilot: How pilots choose learning rates.
    """

    title: str
    sources: list[str]
    shape: list[Positive]
    classes: Positive
    tested: Positive
    samples: Positive | None = None
    by_writer: bool = False
    paper_model: str
    cpu_model: str | None = None
    cpu_alpha: float = 0.0
    cpu_rate: str
    paper: dict[str, Any]
    cpu: dict[str, Any]
    pilot: dict[str, Any]

    def source(self) -> str:
        """The first of the data sets that is there; where none is, the first, whose absence is then explained."""
        there = present()
        for name in self.sources:
            if name in there:
                return name
        return self.sources[0]


def present() -> frozenset[str]:
    """The data sets that are there."""
    folder = os.environ.get("FEDLAMA_DATA")
    return _present_in(folder)


@cache
def _present_in(folder: str | None) -> frozenset[str]:
    """Looked for once: a list of all tables asks some hundred times."""
    names: set[str] = set()
    for entry in catalog():
        if entry.present:
            names.add(entry.name)
    return frozenset(names)


@cache
def table_recipe(name: str) -> TableRecipe:
    """One of the packaged tables."""
    return TableRecipe.model_validate(read_recipe(name))


@cache
def figure_recipe(name: str) -> FigureRecipe:
    """One of the packaged figures."""
    return FigureRecipe.model_validate(read_recipe(name))


@cache
def scale_of(data: str) -> Scale:
    """The configurations for a data set."""
    scales = read_recipe("scales")
    return Scale.model_validate(scales[data])


def smoke_base() -> dict[str, Any]:
    """The one configuration of the scale smoke, whatever the data set of the paper is."""
    return read_recipe("scales")["smoke"]


def read_recipe(name: str) -> dict[str, Any]:
    """The tables of a packaged file."""
    folder = files("fedlama.paper") / "recipes"
    file = folder / f"{name}.toml"
    text = file.read_text(encoding="utf-8")
    return tomllib.loads(text)
