"""`fedlama study`: settings × seeds, one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
from fedlama.cli.studies import show_table, train_and_draw


def study(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY.toml", help="A configuration with a \\[study] table."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The study's folder \\[default: studies/NAME-OF-FILE]."),
    ] = None,
    settings: SelectedSettings = None,
    seeds: SelectedSeeds = None,
    workers: StudyWorkers = None,
    minutes: Minutes = None,
    checkpoints: Checkpoints = None,
    plan: Annotated[bool, typer.Option("--plan", help=PLAN_ONLY)] = False,
    finished: Annotated[bool, typer.Option("--finished", help=FINISHED_ONLY)] = False,
    resume: Annotated[bool, typer.Option("--resume", help=RESUME_STUDY)] = False,
) -> None:
    """Compare settings over seeds: run what is missing, then a table and a report.

    What it takes is printed before it starts. Finished runs are never run again, and an interrupted study goes on. The
    table is also written as table.md, .csv and .tex. --setting and --seeds train a part of it: the table shows what is
    finished, and a later command the rest.
    """
    from fedlama.report.tables.study import study_grid
    from fedlama.study.selection import Selection, parse_seeds, select_of
    from fedlama.study.sitting import Sitting
    from fedlama.study.study_file import load_study

    selection = Selection(tuple(settings or ()), parse_seeds(seeds))
    loaded = select_of(load_study(file), selection)
    folder = out or Path("studies") / file.stem
    drawn = train_and_draw(
        loaded,
        folder,
        workers,
        Sitting(minutes, checkpoints),
        plan_only=plan,
        train=not finished,
    )
    if drawn is None:
        return
    grid = study_grid(drawn.comparison, drawn.index)
    table = show_table(grid, folder / "table")
    print_lines(grid.notes, [table, f"report: {drawn.page}"])
