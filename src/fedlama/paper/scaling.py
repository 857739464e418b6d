"""A group of the paper's lines as a study's tables: all of it, scaled down to two cores, or just a smoke test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fedlama.paper.recipe import (
    Row,
    Scale,
    ScaleName,
    TableGroup,
    TableRecipe,
    scale_of,
    smoke_base,
)
from fedlama.run.overrides import merged
from fedlama.training.trainers.one_by_one import Precision

PAPER_SEEDS = [0, 1, 2]
# Of the run; there the learning rate is divided by 10
DECAY_AT = (Fraction(1, 2), Fraction(3, 4))
SMOKE_CYCLES = 2
SMOKE_SEEDS = 2
SMOKE_ALPHA = 0.5  # below, eight clients of so few samples might get none


@dataclass(frozen=True)
class Changes:
    """What the user wants otherwise than the recipe has it.

    Arguments:
        iterations: Steps of every run; None: the recipe's.
        decay: Whether the learning rate is divided by 10 at half and at three quarters of the run.
        pilots: Whether pilots choose a learning rate for each setting, in place of the recipe's.
        precision: Of local steps; bfloat16 is faster on processors that have instructions for it.
    """

    iterations: int | None = None
    decay: bool = True
    pilots: bool = False
    precision: Precision = "float32"

    def folder(self, scale: str) -> str:
        """Where such runs are written by default: apart from those of the recipe, which are others."""
        parts = [scale]
        if self.iterations is not None:
            parts.append(f"{self.iterations}-steps")
        if not self.decay:
            parts.append("no-decay")
        if self.pilots:
            parts.append("pilots")
        if self.precision != "float32":
            parts.append(self.precision)
        return "-".join(parts)


def study_tables(
    recipe: TableRecipe,
    group: TableGroup,
    scale: ScaleName,
    changes: Changes,
    source: str,
) -> dict[str, Any]:
    """The study of a group, as a file would have it.

    Arguments:
        recipe: The table.
        group: One of its groups.
        scale: How much of it.
        changes: What is wanted otherwise.
        source: The name of the data set.
    """
    common = scale_of(recipe.data)
    if scale == "paper":
        shared = common.paper
    elif scale == "cpu":
        shared = common.cpu
    else:
        shared = smoke_base()

    iterations = changes.iterations or _iterations(recipe, group, scale)
    own: dict[str, Any] = {
        "partition": _partition(recipe, group, scale),
        "train": {"iterations": iterations},
    }
    if scale == "paper":
        own["participation"] = {"active": group.active}
    if scale != "smoke":
        own["data"] = {"name": source}
    if changes.precision != "float32":
        own["train"]["precision"] = changes.precision
    if changes.decay:
        own["local"] = {"decay_steps": _decay_steps(iterations)}

    tables = merged(shared, own)
    tables["study"] = _study(group, common, scale, changes)
    return tables


def alpha_at(group: TableGroup, common: Scale, scale: ScaleName) -> float | None:
    """The paper's α, or the smallest with which a small cohort learns."""
    alpha = group.alpha
    if alpha is None or scale == "paper":
        return alpha

    if scale == "smoke":
        return max(alpha, SMOKE_ALPHA)
    return max(alpha, common.cpu_alpha)


def _iterations(recipe: TableRecipe, group: TableGroup, scale: ScaleName) -> int:
    if scale == "paper":
        return recipe.iterations
    if scale == "cpu":
        common = scale_of(recipe.data)
        return common.cpu["train"]["iterations"]

    # A whole number of every setting's cycles
    cycles = [row.cycle for row in group.rows]
    together = math.lcm(*cycles, *group.between)
    return SMOKE_CYCLES * together


def _decay_steps(iterations: int) -> list[int]:
    steps: list[int] = []
    for share in DECAY_AT:
        steps.append(int(share * iterations))
    return steps


def _partition(
    recipe: TableRecipe, group: TableGroup, scale: ScaleName
) -> dict[str, Any]:
    if recipe.data == "femnist":
        if scale == "smoke":
            # The embedded digits do not say who wrote them.
            return {"kind": "iid"}
        return {"kind": "natural"}

    alpha = alpha_at(group, scale_of(recipe.data), scale)
    if alpha is None:
        return {"kind": "iid"}
    return {"kind": "dirichlet", "alpha": alpha}


def _study(
    group: TableGroup, common: Scale, scale: ScaleName, changes: Changes
) -> dict[str, Any]:
    settings: list[dict[str, Any]] = []
    for row in group.rows:
        settings.append(_setting(row, scale))

    options: dict[str, Any] = {
        "baseline": group.rows[0].name,
        "setting": settings,
        "seeds": _seeds(group, scale),
    }
    if scale != "paper":
        options["fedavg_intervals"] = group.between
    if changes.pilots:
        options |= common.pilot
    return options


def _setting(row: Row, scale: ScaleName) -> dict[str, Any]:
    setting: dict[str, Any] = {
        "name": row.name,
        "policy": row.policy(),
    }
    if scale == "paper":
        # The paper's own; with fewer clients another one is better, and the scale has it.
        setting["local"] = {"learning_rate": row.rate}
    return setting


def _seeds(group: TableGroup, scale: ScaleName) -> list[int]:
    if scale == "paper":
        return PAPER_SEEDS
    count = group.seeds
    if scale == "smoke":
        count = min(count, SMOKE_SEEDS)
    return list(range(count))
