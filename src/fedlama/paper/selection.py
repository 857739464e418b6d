"""Some runs of the paper's tables: those of the settings and seeds that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedlama.paper.reproduce import Panel, Reproduction
from fedlama.study.selection import Selection, check_known, nothing_has_both, selected
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
