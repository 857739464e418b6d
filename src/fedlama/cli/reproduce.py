"""`fedlama reproduce`: a table or figure of the paper beside ours, and our own frontier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlama.base import InputError, RunError
from fedlama.cli.frontier import reproduce_frontier
from fedlama.cli.shared import (
    FINISHED_ONLY,
    PLAN_ONLY,
    RESUME_STUDY,
    Checkpoints,
    Minutes,
    SelectedSeeds,
    SelectedSettings,
    StudyWorkers,
    print_lines,
)
from fedlama.cli.studies import show_table

if TYPE_CHECKING:
    from fedlama.paper.reproduce import Panel, Reproduction
    from fedlama.report.numbers.reproduction import PanelOutcome
    from fedlama.study.progress import StudyDisplay
    from fedlama.study.settings import Study
    from fedlama.study.sitting import Sitting

ALL = "all"
LIST = "list"
SMOKE_SCALE = "smoke"


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="table1 … table12, figure1 … figure6, all of them (`all`), frontier, or `list`.",
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(
            help="smoke: that it works, in seconds, and no result; cpu: scaled down for two cores; paper: all of it."
        ),
    ] = "cpu",
    group: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Only this group of lines, counted from 1: one activity and one α.",
        ),
    ] = None,
    settings: SelectedSettings = None,
    seeds: SelectedSeeds = None,
    iterations: Annotated[
        int | None, typer.Option(min=24, help="Steps \\[default: the scale's].")
    ] = None,
    decay: Annotated[
        bool,
        typer.Option(
            help="Divide the learning rate by 10 at half and at three quarters of the run."
        ),
    ] = True,
    pilots: Annotated[
        bool,
        typer.Option(
            "--pilots",
            help="Choose a learning rate for each setting by pilots (scale cpu).",
        ),
    ] = False,
    precision: Annotated[
        str,
        typer.Option(
            help="Of local steps: float32, or bfloat16, which is faster where the processor has it."
        ),
    ] = "float32",
    all_layers: Annotated[
        bool,
        typer.Option(
            "--all-layers",
            help="Draw all layers in figures 2 and 3, not only kernels as in the paper.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write it \\[default: reproduction/SCALE]."),
    ] = None,
    workers: StudyWorkers = None,
    minutes: Minutes = None,
    checkpoints: Checkpoints = None,
    plan: Annotated[bool, typer.Option("--plan", help=PLAN_ONLY)] = False,
    finished: Annotated[bool, typer.Option("--finished", help=FINISHED_ONLY)] = False,
    resume: Annotated[bool, typer.Option("--resume", help=RESUME_STUDY)] = False,
) -> None:
    """Run a table or figure of the paper, and show the paper's numbers beside ours.

    Tables and figures share their runs. What it takes is printed before it starts; `list` has the hours of all of them.
    --setting and --seeds train a part of it: the table shows what is finished, and a later command the rest.
    What was scaled down, and where the paper is not consistent, is said below.
    """
    from fedlama.paper.recipe import FIGURES, FRONTIER, TABLES
    from fedlama.paper.reproduce import Changes, checked_precision, reproduction
    from fedlama.paper.selection import select
    from fedlama.study.selection import Selection, parse_seeds
    from fedlama.study.sitting import Sitting

    if name == LIST:
        _print_list(workers)
        return
    sitting = Sitting(minutes, checkpoints)
    selection = Selection(tuple(settings or ()), parse_seeds(seeds))
    changes = Changes(
        iterations=iterations,
        decay=decay,
        pilots=pilots,
        precision=checked_precision(precision),
    )
    if name == FRONTIER:
        if changes != Changes() or group is not None or all_layers:
            raise InputError(
                "reproduce frontier takes no --group, --iterations, --no-decay, --pilots, --precision or --all-layers: "
                "it is no table of the paper, but a study of its own"
            )
        reproduce_frontier(
            scale=scale,
            selection=selection,
            out=out,
            workers=workers,
            sitting=sitting,
            plan_only=plan,
            train=not finished,
        )
        return

    names = [name]
    if name == ALL:
        names = [*TABLES, *FIGURES]
    folder = out or Path("reproduction") / changes.folder(scale)
    kept = None
    if finished:
        kept = folder
    every = [reproduction(one, scale, group, changes, kept=kept) for one in names]
    every = select(every, selection)
    _run(
        every,
        folder,
        workers,
        sitting,
        plan_only=plan,
        train=not finished,
        all_layers=all_layers,
    )


def _run(
    every: Sequence[Reproduction],
    folder: Path,
    workers: int | None,
    sitting: Sitting,
    *,
    plan_only: bool,
    train: bool,
    all_layers: bool,
) -> None:
    """Announce, run and show tables and figures, which may share their runs."""
    from fedlama.paper.costs import planned_run
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
        _print_scaled(every)
        announce(studies, workers, sittings=sittings, stand_in=planned_run)
        return
    if train:
        announce(studies, workers, sittings=sittings)

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


def _print_scaled(every: Sequence[Reproduction]) -> None:
    """What differs from the paper: first in all groups of a table, then group by group; what several share, once."""
    lines: dict[str, None] = {}
    for made in every:
        if made.scale == SMOKE_SCALE:
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


def _print_list(workers: int | None) -> None:
    """Every table and figure, and how long it takes here at each scale."""
    from rich.console import Console

    from fedlama.paper.costs import cost_lines
    from fedlama.processes.cpu import cpu_type
    from fedlama.report.tables.costs import cost_table

    lines = cost_lines(workers)
    Console().print(cost_table(lines))
    print(
        f"Times are estimated from a few steps measured on this machine ({cpu_type()}). Tables and figures share runs:"
    )
    print("what one of them has trained, another does not train again.")
