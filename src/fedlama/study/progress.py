"""How a study shows itself: one bar for all of it with an ETA on a terminal, a line per finished run in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedlama.study.cells import End, is_done
from fedlama.study.study_file import Cell, Study
from fedlama.training import Record

SECONDS_BETWEEN_LINES = 60.0


class StudyDisplay:
    """Counts steps over all cells; a cell that is resumed counts from where it goes on."""

    def __init__(self, cells: int, steps: int, bar: Progress | None, stream: TextIO) -> None:
        self.cells = cells
        self.steps = steps
        self.bar = bar
        self.stream = stream
        self.ended = 0
        self._done: dict[str, int] = {}
        self._accuracy: dict[str, float] = {}
        self._started = time.monotonic()
        self._latest_line = self._started
        self._task: TaskID | None = None
        if bar is not None:
            self._task = bar.add_task("study", total=steps, status="")

    def __call__(self, cell: Cell, news: Record | End) -> None:
        """Take a cell's record, or its end."""
        key = _key(cell)
        if isinstance(news, Record):
            self._done[key] = news.step
            if news.accuracy is not None:
                self._accuracy[key] = news.accuracy
        else:
            self.ended += 1
            self._done[key] = cell.config.train.iterations
        if self.bar and self._task is not None:
            status = f"{self.ended}/{self.cells} runs · {cell.label}"
            self.bar.update(self._task, completed=self._steps_done(), status=status)
        elif self._is_worth_a_line(news):
            self._print_line(cell, news)

    def _steps_done(self) -> int:
        """Steps taken, of all cells."""
        return sum(self._done.values())

    def _is_worth_a_line(self, news: Record | End) -> bool:
        """Every end of a run, and in any case something every minute."""
        if not isinstance(news, Record):
            return True
        return time.monotonic() - self._latest_line > SECONDS_BETWEEN_LINES

    def _print_line(self, cell: Cell, news: Record | End) -> None:
        self._latest_line = time.monotonic()
        state = news
        if isinstance(news, Record):
            state = f"step {news.step}"
        parts = [f"{self.ended}/{self.cells} runs", f"{cell.label}: {state}"]
        accuracy = self._accuracy.get(_key(cell))
        if accuracy is not None and news != "diverged":
            parts.append(f"accuracy {accuracy:.2%}")
        parts.append(f"{self._minutes_left():.0f} min left")
        print(" · ".join(parts), file=self.stream, flush=True)

    def _minutes_left(self) -> float:
        elapsed = time.monotonic() - self._started
        done = self._steps_done()
        seconds_per_step = elapsed / max(1, done)
        seconds_left = seconds_per_step * (self.steps - done)
        return seconds_left / 60


def _key(cell: Cell) -> str:
    """Which run this is: the same folder below two studies' folders holds two."""
    return f"{cell.path} {cell.config.model_dump_json()}"


def planned(studies: Sequence[tuple[Study, Path]]) -> list[Cell]:
    """Every run that these studies still need, whatever learning rates will be chosen; two may share a folder."""
    missing: dict[Path, Cell] = {}
    for study, out in studies:
        for cell in (*study.pilots(), *study.cells({})):
            if not is_done(out, cell):
                missing[out / cell.path] = cell
    return list(missing.values())


@contextmanager
def study_progress(studies: Sequence[tuple[Study, Path]], stream: TextIO | None = None) -> Iterator[StudyDisplay]:
    """A display for all that is missing of some studies.

    Arguments:
        studies: each with the folder that it is written to.
        stream: where it is shown (default: standard error).
    """
    out: TextIO = stream or sys.stderr
    cells = planned(studies)
    steps = sum(cell.config.train.iterations for cell in cells)
    if not out.isatty():
        yield StudyDisplay(len(cells), steps, None, out)
        return
    columns = (
        BarColumn(bar_width=12),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(compact=True),
    )
    console = Console(file=out)
    with Progress(*columns, console=console) as bar:
        yield StudyDisplay(len(cells), steps, bar, out)
