"""`fedlama reproduce`: a table or figure of the paper beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlama.cli.shared import RESUME_STUDY, Checkpoints, Minutes, StudyWorkers, print_lines, report_on_study

if TYPE_CHECKING:
    from fedlama.paper.reproduce import Panel, Reproduction
    from fedlama.report.numbers.reproduction import PanelOutcome
    from fedlama.study.progress import StudyDisplay
    from fedlama.study.sitting import Sitting


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
    workers: StudyWorkers = None,
    minutes: Minutes = None,
    checkpoints: Checkpoints = None,
    resume: Annotated[bool, typer.Option("--resume", help=RESUME_STUDY)] = False,
) -> None:
    """Run a table or figure of the paper, and show the paper's numbers beside ours.

    Tables and figures share their runs. What was scaled down, and where the paper is not consistent, is said below.
    """
    from fedlama.paper.reproduce import Changes, reproduction
    from fedlama.study.progress import study_progress
    from fedlama.study.sitting import Sitting

    if name == "list":
        _print_list()
        return
    sitting = Sitting(minutes, checkpoints)
    changes = Changes(iterations=iterations, decay=decay, pilots=pilots)
    made = reproduction(name, scale, group, changes)
    folder = out or Path("reproduction") / changes.folder(scale)
    studies = [(panel.study, folder / panel.folder) for panel in made.panels]
    outcomes: list[PanelOutcome] = []
    with study_progress(studies) as display:
        for panel in made.panels:
            outcomes.append(_outcome(panel, folder, workers, display, sitting))
    _show(made, outcomes, folder)


def _outcome(panel: Panel, folder: Path, workers: int | None, display: StudyDisplay, sitting: Sitting) -> PanelOutcome:
    from fedlama.report.numbers.reproduction import PanelOutcome
    from fedlama.study.execute import run_study

    kept = sitting.below(panel.folder)
    index = run_study(panel.study, folder / panel.folder, workers, display, shared=True, sitting=kept)
    comparison, _ = report_on_study(folder / panel.folder, index)
    return PanelOutcome(panel, comparison, index)


def _show(made: Reproduction, outcomes: Sequence[PanelOutcome], folder: Path) -> None:
    from rich.console import Console

    from fedlama.report.pictures.reproduction import draw_figures
    from fedlama.report.tables.reproduction import reproduction_grid

    grid = reproduction_grid(made, outcomes)
    grid.write(folder, made.file_name)
    Console().print(grid.terminal())
    pictures = draw_figures(made, outcomes, folder)
    files = [f"table: {folder / made.file_name}.md (and .csv, .tex)"]
    for picture in pictures:
        files.append(f"figure: {picture}")
    for outcome in outcomes:
        page = folder / outcome.panel.folder / "report.html"
        files.append(f"report: {page}")
    print_lines(grid.notes, files)


def _print_list() -> None:
    from fedlama.paper.reproduce import FIGURES, TABLES, reproduction

    for name in (*TABLES, *FIGURES):
        made = reproduction(name, "cpu")
        runs: set[tuple[str, Path]] = set()
        pilots: set[tuple[str, Path]] = set()
        for panel in made.panels:  # several may share their runs
            for cell in panel.study.cells({}):
                runs.add((panel.folder, cell.path))
            for pilot in panel.study.pilots():
                pilots.add((panel.folder, pilot.path))
        print(f"{name:9} {made.title} ({len(runs)} runs and {len(pilots)} short pilots at the scale cpu)")
