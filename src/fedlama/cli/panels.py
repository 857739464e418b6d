"""Tables and figures of the paper: their panels run, and what came of them shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedlama.base import InputError, RunError
from fedlama.cli.shared import print_lines
from fedlama.cli.studies import show_table

if TYPE_CHECKING:
    from fedlama.paper.reproduce import Panel, Reproduction
    from fedlama.report.numbers.reproduction import PanelOutcome
    from fedlama.study.progress import StudyDisplay
    from fedlama.study.settings import Study
    from fedlama.study.sitting import Sitting


def train_and_show(
    every: Sequence[Reproduction],
    folder: Path,
    workers: int | None,
    sitting: Sitting,
    *,
    plan_only: bool,
    train: bool,
    all_layers: bool,
) -> None:
    """Announce, run and show tables and figures, which may share their runs.

    Arguments:
        every: The tables and figures.
        folder: Where they are written.
        workers: How many processes share the work.
        sitting: How long it may take, and where checkpoints are kept.
        plan_only: Print what it would take, and stop.
        train: Whether what is missing is trained.
        all_layers: Whether layers that are never lengthened are drawn as well.
    """
    from fedlama.paper.costs import planned_run
    from fedlama.paper.selection import with_seeds_there
    from fedlama.study.plan import announce
    from fedlama.study.progress import study_progress

    studies: list[tuple[Study, Path]] = []
    sittings: dict[Path, Sitting] = {}
    for made in every:
        for panel in made.panels:
            home = folder / panel.folder
            studies.append((panel.study, home))
            sittings[home] = sitting.below(panel.folder)
    if plan_only:
        print_scaled(every)
        announce(studies, workers, sittings=sittings, stand_in=planned_run)
        return
    if train:
        announce(studies, workers, sittings=sittings)

    # What is announced is what may be trained; what is shown may be more.
    every = [with_seeds_there(made, folder) for made in every]
    sitting = sitting.from_now()
    pages: set[Path] = set()
    # Each once: panels may share a folder
    refusals: dict[str, None] = {}
    with study_progress(studies) as display:
        outcomes: list[list[PanelOutcome]] = []
        for made in every:
            own: list[PanelOutcome] = []
            for panel in made.panels:
                try:
                    outcome = _outcome(
                        panel=panel,
                        folder=folder,
                        workers=workers,
                        display=display,
                        sitting=sitting,
                        pages=pages,
                        train=train,
                    )
                except InputError as error:
                    if train:
                        raise
                    # Others of its panels may be finished
                    refusals.update(dict.fromkeys(str(error).splitlines()))
                    continue
                own.append(outcome)
            outcomes.append(own)
    if not any(outcomes):
        raise InputError(*refusals)
    print_lines(list(refusals), files=[])
    _show_all(every, outcomes, folder, all_layers=all_layers)


def print_scaled(every: Sequence[Reproduction]) -> None:
    """What differs from the paper: first in all groups of a table, then group by group; what several share, once.

    Arguments:
        every: The tables and figures.
    """
    lines: dict[str, None] = {}
    for made in every:
        if made.scale == "smoke":
            # It is no result in any case.
            continue
        common = _true_of_all(made.panels)
        if common:
            clauses = "; ".join(common)
            lines[f"{made.title}: {clauses}."] = None
        for panel in made.panels:
            own = [clause for clause in panel.scaled if clause not in common]
            if own:
                clauses = "; ".join(own)
                lines[f"{panel.title}: {clauses}."] = None
    print_lines(list(lines), files=[])


def _true_of_all(panels: Sequence[Panel]) -> list[str]:
    """What is said of each of several groups; a group alone speaks for itself."""
    if len(panels) == 1:
        return []
    first, *others = panels
    found: list[str] = []
    for clause in first.scaled:
        if all(clause in other.scaled for other in others):
            found.append(clause)
    return found


def _show_all(
    every: Sequence[Reproduction],
    outcomes: Sequence[Sequence[PanelOutcome]],
    folder: Path,
    *,
    all_layers: bool,
) -> None:
    """Those of which something is finished; where figures are asked for and not one can be drawn, that is a failure."""
    figures: list[bool] = []  # whether each was drawn
    for made, own in zip(every, outcomes, strict=True):
        if not own:
            continue
        is_drawn = _show(made, own, folder, all_layers=all_layers)
        if made.draw is not None:
            figures.append(is_drawn)
    if figures and not any(figures):
        raise RunError("no figure was drawn")


def _outcome(
    panel: Panel,
    folder: Path,
    workers: int | None,
    display: StudyDisplay,
    sitting: Sitting,
    pages: set[Path],
    *,
    train: bool,
) -> PanelOutcome:
    """Run a panel; `pages` are those that were drawn: panels that share their runs share a page."""
    from fedlama.report.numbers.reproduction import PanelOutcome
    from fedlama.report.page.studies import draw_study
    from fedlama.study.execute import run_study

    home = folder / panel.folder
    own_sitting = sitting.below(panel.folder)
    trained_before = display.ended
    index = run_study(
        panel.study,
        home,
        workers,
        display,
        shared=True,
        sitting=own_sitting,
        train=train,
    )

    has_trained = display.ended > trained_before
    is_new = home not in pages or has_trained
    comparison, _ = draw_study(home, index, draw=is_new)
    pages.add(home)
    return PanelOutcome(panel, comparison, index)


def _show(
    made: Reproduction,
    outcomes: Sequence[PanelOutcome],
    folder: Path,
    *,
    all_layers: bool,
) -> bool:
    """Write and print a table and its pictures; whether there is a picture."""
    from fedlama.report.pictures.reproduction import draw_figures
    from fedlama.report.tables.reproduction import reproduction_grid

    grid = reproduction_grid(made, outcomes)
    table = show_table(grid, folder / made.file_name)

    files = [table]
    drawn = draw_figures(made, outcomes, folder, all_layers=all_layers)
    for picture in drawn.paths:
        files.append(f"figure: {picture}")
    for outcome in outcomes:
        page = folder / outcome.panel.folder / "report.html"
        files.append(f"report: {page}")
    # Panels may share a page.
    without_repeats = list(dict.fromkeys(files))
    print_lines(grid.notes, without_repeats)
    for note in drawn.notes:
        print(note)
    return bool(drawn.paths)
