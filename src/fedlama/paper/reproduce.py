"""The paper's tables and figures as packaged studies, at its scale, at that of two cores, or as a smoke test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import cast

from fedlama.base import InputError, shown
from fedlama.paper.recipe import (
    FIGURES,
    FRONTIER,
    SCALES,
    TABLES,
    Draw,
    PanelSource,
    Row,
    ScaleName,
    figure_recipe,
    read_recipe,
    scale_of,
    table_recipe,
)
from fedlama.paper.scaling import Changes, study_tables
from fedlama.paper.sources import Source, source_kept, source_there
from fedlama.paper.titles import SMOKE_NOTE, folder_of, scaled_down, title_of
from fedlama.run.overrides import merged
from fedlama.study.settings import Study
from fedlama.study.study_file import parse_study
from fedlama.training.trainers.one_by_one import PRECISIONS, Precision

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
SMOKE_STEPS = 96  # of the frontier: two of its windows


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
        if self.group is None:
            return self.name
        return f"{self.name}-group{self.group}"


def reproduction(
    name: str,
    scale: str,
    group: int | None = None,
    changes: Changes | None = None,
    *,
    kept: Path | None = None,
) -> Reproduction:
    """The named table or figure at a scale.

    Arguments:
        name: `table1` … `table12` or `figure1` … `figure6`.
        scale: `smoke`, `cpu` or `paper`.
        group: Only this group of its lines, counted from 1.
        changes: What is wanted otherwise than the recipe has it.
        kept: The folder of runs that are only to be shown: what is said of the data is read there, and not in the data.
    """
    wanted = changes or Changes()
    _check_name(name)
    known_scale = checked_scale(scale, wanted)
    made = _whole(name, known_scale, wanted, kept)
    if group is None:
        return made

    groups = len(made.panels)
    if group > groups:
        has = f"{groups} groups"
        if groups == 1:
            has = "one group"
        raise InputError(f"--group {group}: {name} has {has}")
    return replace(
        made,
        title=f"{made.title}, group {group} of {groups}",
        panels=(made.panels[group - 1],),
        group=group,
    )


def _check_name(name: str) -> None:
    known = (*TABLES, *FIGURES)
    if name in known:
        return

    hint = ""
    for near in get_close_matches(name, known, n=1):
        hint = f"; did you mean {near}?"
    raise InputError(
        f"there is no {shown(name)} in the paper{hint} (table1 … table12, figure1 … figure6, all, frontier, list)"
    )


def checked_scale(scale: str, changes: Changes) -> ScaleName:
    """The scale, if there is such a one and it goes with the changes.

    Arguments:
        scale: What the user wrote.
        changes: What is wanted otherwise than the recipe has it.
    """
    if scale not in SCALES:
        allowed = ", ".join(SCALES)
        raise InputError(f"--scale {shown(scale)}: must be one of {allowed}")

    if scale == "paper" and changes.pilots:
        raise InputError(
            "--pilots: the scale 'paper' has the paper's learning rates; pilots are for --scale cpu"
        )
    if scale == "smoke" and changes != Changes():
        raise InputError(
            "--scale smoke takes no --iterations, --no-decay, --pilots or --precision: it is no result in any case"
        )
    return cast(ScaleName, scale)


def checked_precision(precision: str) -> Precision:
    """The precision, if there is such a one.

    Arguments:
        precision: What the user wrote.
    """
    if precision not in PRECISIONS:
        allowed = ", ".join(PRECISIONS)
        raise InputError(f"--precision {shown(precision)}: must be one of {allowed}")
    return cast(Precision, precision)


def _whole(
    name: str, scale: ScaleName, changes: Changes, kept: Path | None
) -> Reproduction:
    draw = None
    if name in TABLES:
        table = table_recipe(name)
        title = table.title
        sources = [
            PanelSource(table=name, group=number) for number in range(len(table.group))
        ]
    else:
        figure = figure_recipe(name)
        title = figure.title
        draw = figure.draw
        sources = figure.panel

    panels: list[Panel] = []
    for source in sources:
        panels.append(_panel(source, scale, changes, kept))
    return Reproduction(
        name=name,
        title=title,
        scale=scale,
        panels=tuple(panels),
        remarks=tuple(_remarks(sources, changes)),
        draw=draw,
    )


def _remarks(sources: Sequence[PanelSource], changes: Changes) -> list[str]:
    """What the paper is not consistent in: these tables, and all of them."""
    found: dict[str, None] = {}  # each once
    for source in sources:
        recipe = table_recipe(source.table)
        found.update(dict.fromkeys(recipe.remarks))

    found.update(dict.fromkeys(REMARKS))
    if changes.decay:
        found[DECAY_REMARK] = None
    else:
        found[NO_DECAY_REMARK] = None
    return list(found)


def _panel(
    place: PanelSource, scale: ScaleName, changes: Changes, kept: Path | None
) -> Panel:
    recipe = table_recipe(place.table)
    common = scale_of(recipe.data)
    group = recipe.group[place.group]

    def study_with(source: str) -> Study:
        tables = study_tables(recipe, group, scale, changes, source)
        shown_source = f"{place.table}, group {place.group + 1}"
        return parse_study(tables, shown_source)

    def folder_with(source: str) -> str:
        # Data, clients and partition are the same for all settings.
        config = study_with(source).settings[0].config
        return folder_of(place.table, group, scale, config)

    if scale == "smoke":
        # The embedded digits stand in for all sets
        source = Source(common.source())
    elif kept is not None:
        source = source_kept(common, kept, folder_with)
    else:
        source = source_there(common)
    study = study_with(source.name)
    if scale == "smoke":
        study = replace(study, note=SMOKE_NOTE)

    config = study.settings[0].config
    return Panel(
        title=title_of(common, group, scale, config, source),
        folder=folder_of(place.table, group, scale, config),
        study=study,
        rows=tuple(group.rows),
        scaled=scaled_down(
            recipe=recipe,
            group=group,
            scale=scale,
            study=study,
            changes=changes,
            source=source,
        ),
    )


def frontier_study(scale: str = "cpu") -> Study:
    """Accuracy over bytes: FedAvg, FedLAMA, codecs, what others published, and their combinations.

    Arguments:
        scale: `cpu`, or `smoke` for one seed and two windows.
    """
    tables = read_recipe(FRONTIER)
    if scale == "cpu":
        return parse_study(tables, FRONTIER)
    if scale != "smoke":
        raise InputError(
            f"--scale {shown(scale)}: the frontier is not the paper's; it has the scales smoke and cpu"
        )

    for setting in tables["study"]["setting"]:
        setting.pop("seeds", None)
    small = {
        "train": {"iterations": SMOKE_STEPS},
        "study": {"seeds": [0]},
    }
    study = parse_study(merged(tables, small), FRONTIER)
    return replace(study, note=SMOKE_NOTE)
