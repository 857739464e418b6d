"""A study's page, and its settings as numbers."""

from __future__ import annotations

from pathlib import Path

from fedlama.report.numbers.comparison import Comparison, compare
from fedlama.report.page.draw import draw_report
from fedlama.run.recorded import Run
from fedlama.study.index import StudyIndex
from fedlama.study.runs import find_runs


def draw_study(
    folder: Path, index: StudyIndex, *, draw: bool = True
) -> tuple[Comparison, Path]:
    """This study's settings as numbers, and the page of all runs that its folder holds.

    Arguments:
        folder: The study's.
        index: What it holds.
        draw: Whether the page is drawn; one of the same runs may be there already.
    """
    runs = find_runs([folder])
    own: list[Run] = []
    for run in runs:
        name = run.path.relative_to(folder).as_posix()
        if name in index.labels:
            own.append(run)

    comparison = compare(own, baseline=index.baseline)
    page = folder / "report.html"
    if draw:
        page = draw_report(runs, folder, baseline=index.baseline)
    return comparison, page
