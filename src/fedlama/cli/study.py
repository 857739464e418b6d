"""`fedlama study` and `fedlama reproduce`: many runs, one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedlama.paper.reproduce import Panel, Reproduction
    from fedlama.report.numbers.comparison import Comparison
    from fedlama.report.numbers.reproduction import PanelOutcome
    from fedlama.study.index import StudyIndex
    from fedlama.study.sitting import Sitting

Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes: runs go side by side, one worker each \\[default: one a core].")
]
Minutes = Annotated[
    float | None,
    typer.Option(min=0, help="Stop after so many, with checkpoints saved; the same command goes on from there."),
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(help="Where unfinished runs are kept, with their checkpoints \\[default: the folder of the run]."),
]
ResumeHelp = "Accepted for symmetry: a study always goes on where it stopped."


def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="A configuration with a \\[study] table.")],
    out: Annotated[Path | None, typer.Option(help="The study's folder \\[default: studies/NAME-OF-FILE].")] = None,
    workers: Workers = None,
    minutes: Minutes = None,
    checkpoints: Checkpoints = None,
    resume: Annotated[bool, typer.Option("--resume", help=ResumeHelp)] = False,
) -> None:
    """Compare settings over seeds: run what is missing, then a table and a report.

    Finished runs are never run again, and an interrupted study goes on. The table is also written as table.md, .csv and
    .tex.
    """
    from rich.console import Console

    from fedlama.report.tables.study import study_grid
    from fedlama.study.execute import run_study
    from fedlama.study.progress import study_progress
    from fedlama.study.sitting import Sitting
    from fedlama.study.study_file import load_study

    sitting = Sitting(minutes, checkpoints)
    loaded, folder = load_study(file), out or Path("studies") / file.stem
    with study_progress([(loaded, folder)]) as display:
        index = run_study(loaded, folder, workers, display, sitting=sitting)
    comparison, page = _report(folder, index)
    grid = study_grid(comparison, index)
    grid.write(folder, "table")
    Console().print(grid.terminal())
    _say(grid.notes, [f"table: {folder / 'table.md'} (and .csv, .tex)", f"report: {page}"])


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="table1 … table12, figure1 … figure6, or `list`.")],
    scale: Annotated[str, typer.Option(help="cpu: scaled down for two cores; paper: all of it.")] = "cpu",
    group: Annotated[
        int | None,
        typer.Option(min=1, help="Only this group of lines, counted from 1: one activity and one α."),
    ] = None,
    iterations: Annotated[int | None, typer.Option(min=24, help="Steps \\[default: the scale's].")] = None,
    decay: Annotated[
        bool, typer.Option(help="Divide the learning rate by 10 at half and at three quarters of the run.")
    ] = True,
    pilots: Annotated[
        bool, typer.Option("--pilots", help="Choose a learning rate for each setting by pilots (scale cpu).")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Where to write it \\[default: reproduction/SCALE].")] = None,
    workers: Workers = None,
    minutes: Minutes = None,
    checkpoints: Checkpoints = None,
    resume: Annotated[bool, typer.Option("--resume", help=ResumeHelp)] = False,
) -> None:
    """Run a table or figure of the paper, and show the paper's numbers beside ours.

    Tables and figures share their runs. What was scaled down, and where the paper is not consistent, is said below.
    """
    from fedlama.paper.reproduce import Changes, reproduction
    from fedlama.study.progress import study_progress
    from fedlama.study.sitting import Sitting

    if name == "list":
        _list()
        return
    sitting = Sitting(minutes, checkpoints)
    changes = Changes(iterations=iterations, decay=decay, pilots=pilots)
    made = reproduction(name, scale, group, changes)
    folder = out or Path("reproduction") / changes.folder(scale)
    with study_progress([(panel.study, folder / panel.folder) for panel in made.panels]) as display:
        outcomes = [_outcome(panel, folder, workers, display, sitting) for panel in made.panels]
    _show(made, outcomes, folder)


def _outcome(panel: Panel, folder: Path, workers: int | None, display: object, sitting: Sitting) -> PanelOutcome:
    from fedlama.report.numbers.reproduction import PanelOutcome
    from fedlama.study.execute import run_study
    from fedlama.study.progress import StudyDisplay

    assert isinstance(display, StudyDisplay)
    index = run_study(
        panel.study, folder / panel.folder, workers, display, shared=True, sitting=sitting.below(panel.folder)
    )
    comparison, _ = _report(folder / panel.folder, index)
    return PanelOutcome(panel, comparison, index)


def _show(made: Reproduction, outcomes: Sequence[PanelOutcome], folder: Path) -> None:
    from rich.console import Console

    from fedlama.report.pictures.reproduction import draw_figures
    from fedlama.report.tables.reproduction import reproduction_grid

    grid = reproduction_grid(made, outcomes)
    grid.write(folder, made.file_name)
    Console().print(grid.terminal())
    pictures = draw_figures(made, outcomes, folder)
    reports = [f"report: {folder / outcome.panel.folder / 'report.html'}" for outcome in outcomes]
    _say(
        grid.notes,
        [f"table: {folder / made.file_name}.md (and .csv, .tex)", *(f"figure: {path}" for path in pictures), *reports],
    )


def _report(folder: Path, index: StudyIndex) -> tuple[Comparison, Path]:
    """This study's settings as numbers, and the page of all runs that its folder holds."""
    from fedlama.report import compare, draw_report
    from fedlama.study.runs import find_runs

    runs = find_runs([folder])
    own = [run for run in runs if run.path.relative_to(folder).as_posix() in index.labels]
    return compare(own, baseline=index.baseline), draw_report(runs, folder, baseline=index.baseline)


def _say(notes: Sequence[str], files: Sequence[str]) -> None:
    for note in notes:
        print(f"* {note}")
    for line in files:
        print(line)


def _list() -> None:
    from fedlama.paper.reproduce import FIGURES, TABLES, reproduction

    for name in (*TABLES, *FIGURES):
        made = reproduction(name, "cpu")
        cells = {(panel.folder, cell.path) for panel in made.panels for cell in panel.study.cells({})}
        pilots = {(panel.folder, cell.path) for panel in made.panels for cell in panel.study.pilots()}
        print(f"{name:9} {made.title} ({len(cells)} runs and {len(pilots)} short pilots at the scale cpu)")
