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
    StudyWorkers,
    print_lines,
)


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
    workers: StudyWorkers = None,
    minutes: Minutes = None,
    checkpoints: Checkpoints = None,
    plan: Annotated[bool, typer.Option("--plan", help=PLAN_ONLY)] = False,
    finished: Annotated[bool, typer.Option("--finished", help=FINISHED_ONLY)] = False,
    resume: Annotated[bool, typer.Option("--resume", help=RESUME_STUDY)] = False,
) -> None:
    """Compare settings over seeds: run what is missing, then a table and a report.

    What it takes is printed before it starts. Finished runs are never run again, and an interrupted study goes on. The
    table is also written as table.md, .csv and .tex.
    """
    from rich.console import Console

    from fedlama.report.page.studies import draw_study
    from fedlama.report.tables.study import study_grid
    from fedlama.study.execute import run_study
    from fedlama.study.plan import announce
    from fedlama.study.progress import study_progress
    from fedlama.study.sitting import Sitting
    from fedlama.study.study_file import load_study

    loaded = load_study(file)
    folder = out or Path("studies") / file.stem
    sitting = Sitting(minutes, checkpoints)
    if not finished:
        announce([(loaded, folder)], workers, sittings={folder: sitting})
    if plan:
        return
    with study_progress([(loaded, folder)]) as display:
        index = run_study(
            loaded,
            folder,
            workers,
            display,
            sitting=sitting.from_now(),
            train=not finished,
        )
    comparison, page = draw_study(folder, index)
    grid = study_grid(comparison, index)
    grid.write(folder, "table")
    Console().print(grid.terminal())
    table = folder / "table.md"
    print_lines(grid.notes, [f"table: {table} (and .csv, .tex)", f"report: {page}"])
