"""Some runs of the paper's tables: those of the settings and seeds that were asked for, or that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedlama.paper.recipe import DRAWN_FROM_SUMMARIES
from fedlama.paper.reproduce import Panel, Reproduction
from fedlama.paper.titles import ONE_SEED
from fedlama.study.selection import (
    Selection,
    check_known,
    nothing_has_both,
    selected,
    with_finished_seeds,
)
from fedlama.study.settings import Study


def select(every: Sequence[Reproduction], selection: Selection) -> list[Reproduction]:
    """The same tables and figures, of which only these runs are to be trained; groups without any are left out.

    Arguments:
        every: The tables and figures.
        selection: What was asked for; a setting or seed that none of them has is refused.
    """
    if selection == Selection():
        return list(every)

    studies: list[Study] = []
    for made in every:
        studies += [panel.study for panel in made.panels]
    check_known(studies, selection)

    found: list[Reproduction] = []
    for made in every:
        panels: list[Panel] = []
        for panel in made.panels:
            study = selected(panel.study, selection)
            if study.selected:
                panels.append(replace(panel, study=study))
        if panels:
            found.append(replace(made, panels=tuple(panels)))
    if not found:
        raise nothing_has_both()
    return found


def with_seeds_there(made: Reproduction, folder: Path) -> Reproduction:
    """The same over all seeds that are finished, if it is a figure that summaries suffice for: tables may have more.

    Arguments:
        made: The table or figure.
        folder: Where its studies are.
    """
    if made.draw not in DRAWN_FROM_SUMMARIES:
        return made
    panels: list[Panel] = []
    for panel in made.panels:
        study = with_finished_seeds(panel.study, folder / panel.folder)
        scaled = panel.scaled
        if study != panel.study:
            # The picture names its seeds.
            scaled = tuple(_of_recipe(clause) for clause in panel.scaled)
        panels.append(replace(panel, study=study, scaled=scaled))
    return replace(made, panels=tuple(panels))


def _of_recipe(clause: str) -> str:
    if clause == ONE_SEED:
        return f"{ONE_SEED} in the recipe"
    return clause
