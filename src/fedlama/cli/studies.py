"""What commands do with a study: announce it, run what is missing, draw its page, show its table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedlama.report.numbers.comparison import RunComparison
    from fedlama.report.tables.grids import Grid
    from fedlama.study.index import StudyIndex
    from fedlama.study.settings import Study
    from fedlama.study.sitting import Sitting


@dataclass(frozen=True)
class DrawnStudy:
    """A study whose page is drawn.

    Arguments:
        index: Which run belongs to which setting.
        comparison: The settings side by side.
        page: The file.
    """

    index: StudyIndex
    comparison: RunComparison
    page: Path


def train_and_draw(
    study: Study,
    folder: Path,
    workers: int | None,
    sitting: Sitting,
    *,
    plan_only: bool,
    train: bool,
) -> DrawnStudy | None:
    """Run what is missing of a study, after saying what it takes, and draw its page; None where only that was asked.

    Arguments:
        study: The settings and their seeds.
        folder: Its folder.
        workers: How many processes share the work.
        sitting: How long it may take, and where checkpoints are kept.
        plan_only: Print what it would take, and stop.
        train: Whether what is missing is trained.
    """
    from fedlama.report.page.studies import draw_study
    from fedlama.study.execute import run_study
    from fedlama.study.plan import announce
    from fedlama.study.progress import study_progress

    studies = [(study, folder)]
    if train:
        announce(studies, workers, sittings={folder: sitting})
    if plan_only:
        return None

    with study_progress(studies) as display:
        index = run_study(
            study,
            folder,
            workers,
            display,
            sitting=sitting.from_now(),
            train=train,
        )
    comparison, page = draw_study(folder, index)
    return DrawnStudy(index, comparison, page)


def show_table(grid: Grid, path: Path) -> str:
    """Write a table and print it; a line that says where it is.

    Arguments:
        grid: The table.
        path: Its files, without their endings.
    """
    from rich.console import Console

    grid.write(path.parent, path.name)
    Console().print(grid.terminal())
    return f"table: {path}.md (and .csv, .tex)"
