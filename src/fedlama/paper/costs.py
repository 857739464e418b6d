"""What each table and figure takes on this machine, at each scale; no data set is needed to say it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from fedlama.data import IID, Dataset
from fedlama.paper.recipe import (
    FIGURES,
    FRONTIER,
    SCALES,
    TABLES,
    Scale,
    present,
    scale_of,
)
from fedlama.paper.reproduce import Reproduction, frontier_study, reproduction
from fedlama.paper.titles import PAPER_CLIENTS
from fedlama.processes.devices import default_workers
from fedlama.run.config import Config
from fedlama.run.default_models import model_builder
from fedlama.run.resolve import Resolved, resolve
from fedlama.study.cells import resolved
from fedlama.study.settings import Cell
from fedlama.study.speed import (
    Amount,
    Kind,
    amount_of,
    kind_of,
    measured,
    total_seconds,
)
from fedlama.training.trainers.stacked import BLOCK

FRONTIER_TITLE = "Not in the paper: accuracy over bytes with codecs and other policies"
BUDGET = 25.0  # seconds for all measurements; on a quiet machine a few suffice
DATA_SETS = ("cifar10", "cifar100", "femnist")


@dataclass(frozen=True)
class Cost:
    """What a table takes at a scale; `seconds` is None where that was not measured in time."""

    runs: int
    seconds: float | None


@dataclass(frozen=True)
class CostLine:
    """A table or figure; a scale that it does not have is missing."""

    name: str
    title: str
    costs: dict[str, Cost]


def cost_lines(workers: int | None) -> list[CostLine]:
    """Every table and figure, and the frontier.

    Arguments:
        workers: How many processes run at a time (default: one per GPU, or one per core).
    """
    processes = workers or default_workers("auto")
    needed = _needed()
    examples = _one_of_each_kind(needed)
    runs = list(examples.values())
    speeds = measured(runs, BUDGET)
    speed_of = dict(zip(examples, speeds, strict=True))

    lines: list[CostLine] = []
    for (name, title), scales in needed.items():
        costs: dict[str, Cost] = {}
        for scale, cells in scales.items():
            amounts = [_amount(cell.config) for cell in cells]
            seconds = total_seconds(amounts, speed_of)
            if seconds is not None:
                seconds = seconds / processes
            costs[scale] = Cost(runs=len(cells), seconds=seconds)
        line = CostLine(name, title, costs)
        lines.append(line)
    return lines


def _needed() -> dict[tuple[str, str], dict[str, list[Cell]]]:
    """The runs of every name, with its title, at every scale."""
    needed: dict[tuple[str, str], dict[str, list[Cell]]] = {}
    for name in (*TABLES, *FIGURES):
        scales: dict[str, list[Cell]] = {}
        title = ""
        for scale in SCALES:
            made = reproduction(name, scale)
            title = made.title
            scales[scale] = _cells(made)
        needed[name, title] = scales

    needed[FRONTIER, FRONTIER_TITLE] = {
        "smoke": frontier_study("smoke").cells({}),
        "cpu": frontier_study("cpu").cells({}),
    }
    return needed


def _cells(made: Reproduction) -> list[Cell]:
    """The runs of a table or figure, each once: several panels may share their runs."""
    cells: dict[Path, Cell] = {}
    for panel in made.panels:
        folder = Path(panel.folder)
        for cell in panel.study.cells({}):
            cells[folder / cell.path] = cell
    return list(cells.values())


def _one_of_each_kind(
    needed: dict[tuple[str, str], dict[str, list[Cell]]],
) -> dict[Kind, Resolved]:
    """Runs to measure: small models first, as time may run out; one method stands for all with its data and model."""
    found: dict[str, tuple[Kind, Resolved]] = {}
    for scale in SCALES:
        for scales in needed.values():
            for cell in scales.get(scale, []):
                kind = kind_of(cell.config)
                if kind.task in found:
                    continue
                run = _stand_in(cell.config)
                found[kind.task] = (kind, run)
    return dict(found.values())


def _amount(config: Config) -> tuple[Kind, Amount]:
    run = _stand_in(config)
    return kind_of(config), amount_of(run)


def _stand_in(config: Config) -> Resolved:
    """What a configuration describes, with empty samples of the right shape in place of data that may not be there."""
    common = _scale_with(config.data.name)
    if common is None:
        # The embedded digits are always there. Seeds take the same time.
        first_seed = config.model_copy(update={"seed": 0})
        return resolve(first_seed)

    data = _empty_data(config.data.name)
    clients = config.partition.clients or PAPER_CLIENTS
    return Resolved(
        config=config,
        data=data,
        shards=IID(clients).assign(data, config.seed),
        policy=config.policy.build(),
        local=config.local.build(),
        server=config.server.build(),
        uplink=None,
        downlink=None,
        participation=config.participation.build(),
        faults=None,
        model=model_builder(str(config.model.name), data),
    )


def planned_run(cell: Cell) -> Resolved:
    """A run of a table to be counted and measured for a plan: itself if its data is there, otherwise a stand-in.

    Arguments:
        cell: The run.
    """
    if cell.config.data.name in present():
        return resolved(cell)
    return _stand_in(cell.config)


def _scale_with(source: str) -> Scale | None:
    for data in DATA_SETS:
        common = scale_of(data)
        if source in common.sources:
            return common
    return None


@cache
def _empty_data(source: str) -> Dataset:
    common = _scale_with(source)
    assert common is not None
    trained = 2 * BLOCK * PAPER_CLIENTS
    tested = common.tested

    # Expanded from a single one, they take no memory.
    pixels = torch.zeros(1, *common.shape, dtype=torch.uint8)
    label = torch.zeros(1, dtype=torch.int64)
    every_pixel = [-1] * len(common.shape)
    return Dataset(
        x_train=pixels.expand(trained, *every_pixel),
        y_train=label.expand(trained),
        x_test=pixels.expand(tested, *every_pixel),
        y_test=label.expand(tested),
        name=source,
        classes=common.classes,
    )
