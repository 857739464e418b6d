"""`fedlama reproduce`: a table or figure of the paper beside ours, and our own frontier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedlama.base import InputError
from fedlama.cli.frontier import reproduce_frontier
from fedlama.cli.panels import train_and_show
from fedlama.cli.shared import (
    FINISHED_ONLY,
    PLAN_ONLY,
    RESUME_STUDY,
    Checkpoints,
    Minutes,
    SelectedSeeds,
    SelectedSettings,
    StudyWorkers,
)

ALL = "all"
LIST = "list"


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
    train_and_show(
        every,
        folder,
        workers,
        # Runs of other scales, lengths and precisions are others.
        sitting.below(changes.folder(scale)),
        plan_only=plan,
        train=not finished,
        all_layers=all_layers,
    )


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
