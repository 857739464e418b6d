"""How a run shows itself: a bar with an ETA on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedlama.processes.world import torchrun_rank
from fedlama.training import Record

SECONDS_BETWEEN_LINES = 30.0


class ProgressDisplay:
    """Shows one or several runs, one after the other, as one piece of work."""

    def __init__(self, steps_per_run: int, runs: int, bar: Progress | None, stream: TextIO) -> None:
        self.steps_per_run = steps_per_run
        self.total = steps_per_run * runs
        self.bar = bar
        self.stream = stream
        self.done = 0
        self.label = ""
        self.accuracy = "-"
        self._steps_before = 0  # of the runs before this one
        self._started = time.monotonic()
        self._latest_line = self._started
        self._task: TaskID | None = None
        if bar is not None:
            self._task = bar.add_task("", total=self.total, status="")

    def begin(self, label: str) -> None:
        """The next run starts."""
        self.label = label
        self.accuracy = "-"
        self._steps_before = self.done
        if self.bar and self._task is not None:
            self.bar.update(self._task, description=label)

    def __call__(self, record: Record) -> None:
        """Take one round's record."""
        self.done = self._steps_before + record.step
        if record.accuracy is not None:
            self.accuracy = f"{record.accuracy:.1%}"
        if self.bar and self._task is not None:
            status = self._short_status(record)
            self.bar.update(self._task, completed=self.done, description=self.label, status=status)
        elif self._is_worth_a_line(record):
            self._print_line(record)

    def _short_status(self, record: Record) -> str:
        """Beside a bar: eighty columns must do."""
        return f"round {record.round} loss {record.loss:.2f} acc {self.accuracy} cost {record.cost:.0%}"

    def _is_worth_a_line(self, record: Record) -> bool:
        """Evaluations of a single run, the ends of several, and in any case something every half minute."""
        ends = self.done % self.steps_per_run == 0
        is_only_run = self.steps_per_run == self.total
        evaluated = is_only_run and record.accuracy is not None
        if ends or evaluated:
            return True
        return time.monotonic() - self._latest_line > SECONDS_BETWEEN_LINES

    def _print_line(self, record: Record) -> None:
        self._latest_line = time.monotonic()
        parts = [
            self.label,
            f"step {self.done}/{self.total}",
            f"round {record.round}",
            f"loss {record.loss:.3f}",
            f"accuracy {self.accuracy}",
            f"cost so far {record.cost:.0%}",
            f"{self._seconds_left():.0f} s left",
        ]
        print(" · ".join(parts), file=self.stream, flush=True)

    def _seconds_left(self) -> float:
        elapsed = time.monotonic() - self._started
        seconds_per_step = elapsed / max(1, self.done)
        steps_left = self.total - self.done
        return seconds_per_step * steps_left


@contextmanager
def progress(steps_per_run: int, runs: int = 1, stream: TextIO | None = None) -> Iterator[ProgressDisplay]:
    """A display for some runs, one after the other.

    Arguments:
        steps_per_run: how many steps each of them takes.
        runs: how many there are.
        stream: where it is shown (default: standard error).
    """
    out: TextIO = stream or sys.stderr
    if not out.isatty() or torchrun_rank() != 0:  # one bar for a group of processes
        yield ProgressDisplay(steps_per_run, runs, None, out)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=8),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(compact=True),
    )
    console = Console(file=out)
    with Progress(*columns, console=console) as bar:
        yield ProgressDisplay(steps_per_run, runs, bar, out)
