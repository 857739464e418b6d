"""`fedlama reproduce frontier`: our own question, FedAvg's accuracy for how few of its bytes?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedlama.base import InputError
from fedlama.cli.shared import print_lines
from fedlama.cli.studies import show_table, train_and_draw

if TYPE_CHECKING:
    from fedlama.study.selection import Selection
    from fedlama.study.settings import Study
    from fedlama.study.sitting import Sitting


def reproduce_frontier(
    scale: str,
    selection: Selection,
    out: Path | None,
    workers: int | None,
    sitting: Sitting,
    *,
    plan_only: bool,
    train: bool,
) -> None:
    """Announce, run and show the frontier.

    Arguments:
        scale: How much of it.
        selection: Which runs are to be trained.
        out: The study's folder, where one is named.
        workers: How many processes share the work.
        sitting: How long it may take, and where checkpoints are kept.
        plan_only: Print what it would take, and stop.
        train: Whether what is missing is trained.
    """
    from fedlama.report.pictures.paired import draw_paired
    from fedlama.report.tables.paired import paired_grid

    folder = out or _default_folder(scale)
    study = _frontier_study(folder, scale, selection)
    drawn = train_and_draw(
        study,
        folder,
        workers,
        # As its own folder has it, apart from other scales and from tables
        sitting.below(_default_folder(scale).name),
        plan_only=plan_only,
        train=train,
    )
    if drawn is None:
        return
    grid = paired_grid(drawn.comparison)
    table = show_table(grid, folder / "paired")
    picture = draw_paired(drawn.comparison, folder)
    files = [
        table,
        f"figure: {picture}",
        f"report: {drawn.page}",
    ]
    print_lines(grid.notes, files)


def _default_folder(scale: str) -> Path:
    """Smoke tests are kept apart from results."""
    from fedlama.paper.recipe import FRONTIER

    name = FRONTIER
    if scale == "smoke":
        name = f"{name}-smoke"
    return Path("reproduction") / name


def _frontier_study(folder: Path, scale: str, selection: Selection) -> Study:
    """The frontier, or the chosen runs of it; refused where its table would have nothing to subtract."""
    from fedlama.paper.reproduce import frontier_study
    from fedlama.study.cells import is_done
    from fedlama.study.selection import select_of

    study = select_of(frontier_study(scale), selection)
    baseline = study.options.baseline
    every = [cell for cell in study.cells({}) if cell.setting == baseline]
    is_finished = any(is_done(folder, cell) for cell in every)
    if not (study.selected_of(every) or is_finished):
        raise InputError(
            f"--setting: the frontier is of differences to {baseline}, which is not finished: choose it as well"
        )
    return study
