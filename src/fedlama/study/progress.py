"""How a study shows itself: one bar for all of it with an ETA on a terminal, a line per finished run in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedlama.base.times import about
from fedlama.run.progress import sent_share
from fedlama.run.texts import SMALL_SHARE
from fedlama.study.cells import End
from fedlama.study.plan import Studies, planned
from fedlama.study.settings import Cell, Study
from fedlama.training import Record
from fedlama.training.records import fedavg_at

SECONDS_BETWEEN_LINES = 60.0


class StudyDisplay:
    """Counts steps over all cells; a cell that is resumed counts from where it goes on.

    Arguments:
        cells: How many runs there are.
        steps: How many steps they have together.
        bar: Where it is drawn on a terminal; None prints lines.
        stream: Where lines are printed.
        baselines: By setting, the interval of the FedAvg that it is compared with (default: its own base interval).
    """

    def __init__(
        self,
        cells: int,
        steps: int,
        bar: Progress | None,
        stream: TextIO,
        baselines: Mapping[str, int] | None = None,
    ) -> None:
        self.cells = cells
        self.steps = steps
        self.bar = bar
        self.stream = stream
        self.baselines = baselines or {}
        self.ended = 0

        # By cell
        self._done: dict[str, int] = {}
        self._latest: dict[str, Record] = {}
        self._score: dict[str, str] = {}  # the latest, with its name

        self._started = time.monotonic()
        # Steps of cells that go on, taken before they were resumed
        self._taken_before = 0
        self._latest_line = self._started
        self._task: TaskID | None = None
        if bar is not None:
            self._task = bar.add_task("study", total=steps, status="")

    def __call__(self, cell: Cell, news: Record | End) -> None:
        """Take a cell's record, or its end."""
        key = _key(cell)
        if isinstance(news, Record):
            self._take_record(key, news)
        else:
            self.ended += 1
            self._done[key] = cell.config.train.iterations

        if self.bar and self._task is not None:
            self.bar.update(
                self._task,
                completed=self._steps_done(),
                status=f"{self.ended}/{self.cells} runs · {cell.label}",
            )
        elif self._is_worth_a_line(news):
            self._print_line(cell, news)

    def _take_record(self, key: str, record: Record) -> None:
        is_resumed = key not in self._latest and record.round > 1
        self._latest[key] = record
        self._done[key] = record.step
        if is_resumed:
            self._note_resumed(record)

        # A metric of the user's own takes the place of the accuracy.
        if record.accuracy is not None:
            self._score[key] = f"accuracy {record.accuracy:.2%}"
        for name, value in record.metrics.items():
            self._score[key] = f"{name} {value:.4g}"

    def _note_resumed(self, record: Record) -> None:
        """What a cell did before took none of this time; where nothing else was done yet, the clock starts here."""
        self._taken_before += record.step
        done = self._steps_done()
        nothing_was_timed = done == self._taken_before
        if nothing_was_timed:
            self._started = time.monotonic()

        bar = self.bar
        task = self._task
        if bar is None or task is None:
            return
        # Else the bar would take the steps from before for speed.
        bar.reset(task, total=self.steps, completed=done)

    def _steps_done(self) -> int:
        """Steps taken, of all cells."""
        return sum(self._done.values())

    def _is_worth_a_line(self, news: Record | End) -> bool:
        """Every end of a run, and in any case something every minute."""
        if not isinstance(news, Record):
            return True
        # A log that stands still looks like a program that hangs.
        since_latest = time.monotonic() - self._latest_line
        return since_latest > SECONDS_BETWEEN_LINES

    def _print_line(self, cell: Cell, news: Record | End) -> None:
        self._latest_line = time.monotonic()
        state = news
        if isinstance(news, Record):
            state = f"step {news.step}"
        parts = [
            f"{self.ended}/{self.cells} runs",
            f"{cell.label}: {state}",
        ]

        if news != "diverged":
            parts += self._reached(cell)
        left = self._left()
        if left:
            parts.append(left)
        line = " · ".join(parts)
        print(line, file=self.stream, flush=True)

    def _reached(self, cell: Cell) -> list[str]:
        """A cell's score, and what it sent as a share of its baseline's; nothing where it has no record yet."""
        key = _key(cell)
        parts: list[str] = []
        if key in self._score:
            parts.append(self._score[key])
        record = self._latest.get(key)
        if record is None:
            return parts

        own = cell.config.policy.steps_between_averages
        base = self.baselines.get(cell.setting, own)
        share = sent_share(record, own, base)
        parts.append(f"sent {_percent(share)} of {fedavg_at(base)}")
        return parts

    def _left(self) -> str:
        """The time that the rest takes; empty where there is no rest, and where no step was timed yet."""
        done = self._steps_done()
        taken = done - self._taken_before
        steps_left = self.steps - done
        if steps_left <= 0 or not taken:
            return ""

        elapsed = time.monotonic() - self._started
        seconds_per_step = elapsed / taken
        left = about(seconds_per_step * steps_left)
        return f"{left} left"


def _percent(share: float) -> str:
    """Whole percent; of small shares the digits in which they differ."""
    percent = 100 * share
    if share < SMALL_SHARE:
        return f"{percent:.2g} %"
    return f"{percent:.0f} %"


def _key(cell: Cell) -> str:
    """Which run this is: the same folder below two studies' folders holds two."""
    content = cell.config.model_dump_json()
    return f"{cell.path} {content}"


def baselines_of(studies: Studies) -> dict[str, int]:
    """By setting, the interval of its study's baseline, where that is a FedAvg and all studies agree on it."""
    intervals: dict[str, set[int]] = {}
    for study, _ in studies:
        interval = _fedavg_interval(study)
        if interval is None:
            continue
        for setting in study.settings:
            of_setting = intervals.setdefault(setting.name, set())
            of_setting.add(interval)

    only: dict[str, int] = {}
    for name, of_setting in intervals.items():
        if len(of_setting) == 1:
            only[name] = of_setting.pop()
    return only


def _fedavg_interval(study: Study) -> int | None:
    """The interval of a study's baseline; None where that is no FedAvg."""
    for setting in study.settings:
        if setting.name != study.options.baseline:
            continue
        return setting.config.policy.fedavg_interval
    return None


@contextmanager
def study_progress(
    studies: Studies, stream: TextIO | None = None
) -> Iterator[StudyDisplay]:
    """A display for all that is missing of some studies.

    Arguments:
        studies: each with the folder that it is written to.
        stream: where it is shown (default: standard error).
    """
    out: TextIO = stream or sys.stderr
    cells = planned(studies)
    steps = sum(cell.config.train.iterations for cell in cells)
    baselines = baselines_of(studies)
    if not out.isatty():
        yield StudyDisplay(
            cells=len(cells), steps=steps, bar=None, stream=out, baselines=baselines
        )
        return

    columns = (
        BarColumn(bar_width=12),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(compact=True),
    )
    console = Console(file=out)
    with Progress(*columns, console=console) as bar:
        yield StudyDisplay(
            cells=len(cells), steps=steps, bar=bar, stream=out, baselines=baselines
        )
