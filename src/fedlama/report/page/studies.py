"""A study's page, and its settings as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedlama.report.numbers.comparison import RunComparison, compare
from fedlama.report.page.draw import draw_report
from fedlama.run.recorded import RecordedRun
from fedlama.study.index import StudyIndex
from fedlama.study.runs import find_runs


def draw_study(
    folder: Path, index: StudyIndex, *, draw: bool = True
) -> tuple[RunComparison, Path]:
    """This study's settings as numbers, and the page of all runs that its folder holds.

    Arguments:
        folder: The study's.
        index: What it holds.
        draw: Whether the page is drawn; one of the same runs may be there already.
    """
    runs = find_runs([folder])
    own: list[RecordedRun] = []
    for run in runs:
        name = run.path.relative_to(folder).as_posix()
        if name in index.labels:
            own.append(run)

    # A study of which only some runs are finished may lack the one that the others are compared with.
    comparison = compare(own, baseline=index.baseline, baseline_may_lack=True)
    page = folder / "report.html"
    if draw:
        page = draw_report(runs, folder, baseline=baseline_among(runs, index))
    return comparison, page


def baseline_among(runs: Sequence[RecordedRun], index: StudyIndex) -> str | None:
    """The study's baseline, if one of these runs is of it: a page of the others names what it relates them to.

    Arguments:
        runs: What is drawn.
        index: Of the study.
    """
    labels = [run.label for run in runs]
    if index.baseline in labels:
        return index.baseline
    return None
