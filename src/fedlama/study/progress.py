"""How a study shows itself: one bar for all of it with an ETA on a terminal, a line a finished run in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedlama.study.cells import End, is_done
from fedlama.study.study_file import Cell, Study
from fedlama.training import Record

SECONDS_BETWEEN_LINES = 60.0


class StudyDisplay:
    """Counts steps over all cells; a cell that is resumed counts from where it goes on."""

    def __init__(self, cells: int, steps: int, bar: Progress | None, stream: TextIO) -> None:
        self.cells, self.steps, self.bar, self.stream = cells, steps, bar, stream
        self.ended = 0
        self._done: dict[str, int] = {}
        self._accuracy: dict[str, float] = {}
        self._started = self._latest_line = time.monotonic()
        self._task = bar.add_task("study", total=steps, status="") if bar else None

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
        done = sum(self._done.values())
        if self.bar and self._task is not None:
            status = f"{self.ended}/{self.cells} runs · {cell.label}"
            self.bar.update(self._task, completed=done, status=status)
        elif not isinstance(news, Record) or time.monotonic() - self._latest_line > SECONDS_BETWEEN_LINES:
            self._line(cell, news, done)

    def _line(self, cell: Cell, news: Record | End, done: int) -> None:
        self._latest_line = time.monotonic()
        left = (self._latest_line - self._started) * (self.steps - done) / max(1, done)
        reached = self._accuracy.get(_key(cell))
        score = "" if reached is None or news == "diverged" else f" · accuracy {reached:.2%}"
        state = f"step {news.step}" if isinstance(news, Record) else news
        runs = f"{self.ended}/{self.cells} runs"
        print(f"{runs} · {cell.label}: {state}{score} · {left / 60:.0f} min left", file=self.stream, flush=True)


def _key(cell: Cell) -> str:
    """Which run this is: the same folder below two studies' folders holds two."""
    return f"{cell.path} {cell.config.model_dump_json()}"


def planned(studies: Sequence[tuple[Study, Path]]) -> list[Cell]:
    """Every run that these studies still need, whatever learning rates will be chosen; two may share a folder."""
    cells = {out / cell.path: cell for study, out in studies for cell in (*study.pilots(), *study.cells({}))}
    return [cell for path, cell in cells.items() if not is_done(path.parent, replace(cell, path=Path(path.name)))]


@contextmanager
def study_progress(studies: Sequence[tuple[Study, Path]], stream: TextIO | None = None) -> Iterator[StudyDisplay]:
    """A display on standard error for all that is missing of these studies."""
    out: TextIO = stream or sys.stderr
    cells = planned(studies)
    steps = sum(cell.config.train.iterations for cell in cells)
    if not out.isatty():
        yield StudyDisplay(len(cells), steps, None, out)
        return
    columns = (BarColumn(bar_width=12), TextColumn("{task.fields[status]}"), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(file=out)) as bar:
        yield StudyDisplay(len(cells), steps, bar, out)
