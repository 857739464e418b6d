"""How a run shows itself: a bar with an ETA on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedlama.processes.world import torchrun_rank
from fedlama.training import Record

SECONDS_BETWEEN_LINES = 30.0


class ProgressDisplay:
    """Shows one or several runs, one after the other, as one piece of work."""

    def __init__(self, steps_a_run: int, runs: int, bar: Progress | None, stream: TextIO) -> None:
        self.steps_a_run, self.total, self.bar, self.stream = steps_a_run, steps_a_run * runs, bar, stream
        self.done, self.label, self.accuracy = 0, "", "-"
        self._started = self._latest_line = time.monotonic()
        self._task = bar.add_task("", total=self.total, status="") if bar else None

    def begin(self, label: str) -> None:
        """The next run starts."""
        self.label, self._base, self.accuracy = label, self.done, "-"
        if self.bar and self._task is not None:
            self.bar.update(self._task, description=label)

    def __call__(self, record: Record) -> None:
        """Take one round's record."""
        self.done = self._base + record.step
        if record.accuracy is not None:
            self.accuracy = f"{record.accuracy:.1%}"
        status = (
            f"round {record.round} · loss {record.loss:.3f} · accuracy {self.accuracy} · cost so far {record.cost:.0%}"
        )
        if self.bar and self._task is not None:  # eighty columns must do
            short = f"round {record.round} loss {record.loss:.2f} acc {self.accuracy} cost {record.cost:.0%}"
            self.bar.update(self._task, completed=self.done, description=self.label, status=short)
        elif self._worth_a_line(record):
            self._line(status)

    def _worth_a_line(self, record: Record) -> bool:
        """Evaluations of a single run, the ends of several, and in any case something every half minute."""
        ends = self.done % self.steps_a_run == 0
        evaluated = record.accuracy is not None and self.steps_a_run == self.total
        return ends or evaluated or time.monotonic() - self._latest_line > SECONDS_BETWEEN_LINES

    def _line(self, status: str) -> None:
        self._latest_line = time.monotonic()
        left = (self._latest_line - self._started) * (self.total - self.done) / max(1, self.done)
        steps = f"step {self.done}/{self.total}"
        print(f"{self.label} · {steps} · {status} · {left:.0f} s left", file=self.stream, flush=True)


@contextmanager
def progress(steps_a_run: int, runs: int = 1, stream: TextIO | None = None) -> Iterator[ProgressDisplay]:
    """A display on standard error for some runs of so many steps."""
    out: TextIO = stream or sys.stderr
    if not out.isatty() or torchrun_rank() != 0:  # one bar for a group of processes
        yield ProgressDisplay(steps_a_run, runs, None, out)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(file=out)) as bar:
        yield ProgressDisplay(steps_a_run, runs, bar, out)
