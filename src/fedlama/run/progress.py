"""How a run shows itself: a bar with an ETA on a terminal, plain lines in a log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedlama.base.times import about
from fedlama.processes.world import torchrun_rank
from fedlama.run.texts import SMALL_SHARE
from fedlama.training import Record
from fedlama.training.records import fedavg_at

SECONDS_BETWEEN_LINES = 30.0


class ProgressDisplay:
    """Shows one or several runs, one after the other, as one piece of work.

    What a run sent is shown as a share of what FedAvg would have sent by then: at the run's own base interval, or,
    where runs are compared, at that of their baseline.
    """

    def __init__(
        self, steps_per_run: int, runs: int, bar: Progress | None, stream: TextIO
    ) -> None:
        self.steps_per_run = steps_per_run
        self.total = steps_per_run * runs
        self.bar = bar
        self.stream = stream
        self.done = 0
        self.label = ""
        self.score = ""  # the latest, with its name
        self._own_interval: int | None = None
        self._baseline: int | None = None
        self._asked: float | None = None
        self._steps_before = 0  # of the runs before this one
        self._started = time.monotonic()
        # Steps of runs that go on, taken before they were resumed
        self._taken_before = 0
        self._has_record = False  # of this run
        self._latest_line = self._started
        self._task: TaskID | None = None
        if bar is not None:
            self._task = bar.add_task("", total=self.total, status="")

    def begin(
        self,
        label: str,
        base_interval: int | None = None,
        baseline: int | None = None,
        *,
        asked: float | None = None,
    ) -> None:
        """The next run starts.

        Arguments:
            label: What it is called.
            base_interval: Of its policy; without it, nothing is said of what it sends.
            baseline: The interval of the FedAvg that it is compared with (default: its own base interval).
            asked: Which share of FedAvg's uplink at its own base interval it was to send at most; None for no limit.
        """
        self.label = label
        self.score = ""
        self._has_record = False
        self._steps_before = self.done

        self._own_interval = base_interval
        self._baseline = baseline or base_interval
        self._asked = asked

        if self.bar and self._task is not None:
            self.bar.update(self._task, description=label)

    def __call__(self, record: Record) -> None:
        """Take one round's record."""
        self.done = self._steps_before + record.step
        if record.round > 1 and not self._has_record:
            self._note_resumed(record)
        self._has_record = True

        if record.accuracy is not None:
            self.score = f"accuracy {record.accuracy:.1%}"
        for name, value in record.metrics.items():
            self.score = f"{name} {value:.4g}"

        if self.bar and self._task is not None:
            self.bar.update(
                self._task,
                completed=self.done,
                description=self.label,
                status=self._short_status(record),
            )
        elif self._is_worth_a_line(record):
            self._print_line(record)

    def _note_resumed(self, record: Record) -> None:
        """What was done before took none of this time: the clock starts with the first record."""
        self._taken_before += record.step
        is_first_step_here = self.done == self._taken_before
        if is_first_step_here:
            self._started = time.monotonic()
        if self.bar and self._task is not None:
            self.bar.reset(
                self._task,
                total=self.total,
                completed=self.done,
            )

    def _short_status(self, record: Record) -> str:
        """Beside a bar: eighty columns must do."""
        score = self.score.replace("accuracy", "acc")
        parts = [
            f"round {record.round}",
            f"loss {record.loss:.2f}",
            score,
            self._sent(record),
        ]
        return " ".join(part for part in parts if part)

    def _sent(self, record: Record) -> str:
        """What was sent so far, and of what that is a share."""
        if self._own_interval is None or self._baseline is None:
            return ""

        share = sent_share(record, self._own_interval, self._baseline)
        text = f"{_percent(share)} of {fedavg_at(self._baseline)}"
        return text + self._excess(record)

    def _excess(self, record: Record) -> str:
        """At a run's end, what it was to send at most, if it sent more in the digits that are shown."""
        asked = self._asked
        share = record.uplink_share
        ends = record.step == self.steps_per_run
        if asked is None or share is None or not ends:
            return ""
        is_more = share > asked
        looks_equal = _percent(share) == _percent(asked)
        if looks_equal or not is_more:
            return ""
        return f", asked for {100 * asked:g}%"

    def _is_worth_a_line(self, record: Record) -> bool:
        """Evaluations of a single run, the ends of several, and in any case something every half minute."""
        ends = self.done % self.steps_per_run == 0
        if ends:
            return True

        is_only_run = self.steps_per_run == self.total
        is_evaluated = record.score is not None
        if is_only_run and is_evaluated:
            return True

        since_latest = time.monotonic() - self._latest_line
        return since_latest > SECONDS_BETWEEN_LINES

    def _print_line(self, record: Record) -> None:
        self._latest_line = time.monotonic()
        sent = self._sent(record)
        if sent:
            sent = f"sent {sent}"
        parts = [
            self.label,
            f"step {self.done}/{self.total}",
            f"round {record.round}",
            f"loss {record.loss:.3f}",
            self.score,
            sent,
            self._left(),
        ]
        line = " · ".join(part for part in parts if part)
        print(line, file=self.stream, flush=True)

    def _left(self) -> str:
        """The time that the rest takes; empty at the end, and where no step was timed yet."""
        taken = self.done - self._taken_before
        steps_left = self.total - self.done
        if steps_left <= 0 or not taken:
            return ""

        elapsed = time.monotonic() - self._started
        seconds_per_step = elapsed / taken
        left = about(seconds_per_step * steps_left)
        return f"{left} left"


def sent_share(record: Record, own_interval: int, interval: int) -> float:
    """What was sent so far, as a share of what FedAvg at an interval would have sent by then.

    Arguments:
        record: Its uplink, or if that is not known its aggregations, are a share of FedAvg at the run's own interval.
        own_interval: The base interval of the run.
        interval: That of the FedAvg to compare with.
    """
    share = record.uplink_share
    if share is None:
        share = record.cost

    # Rounded up: a run that ends inside an interval averages there, too.
    own_averages = math.ceil(record.step / own_interval)
    averages = math.ceil(record.step / interval)
    return share * own_averages / averages


def _percent(share: float) -> str:
    """Whole percent; small shares with the digits that tell them apart."""
    if share < SMALL_SHARE:
        return f"{100 * share:.2g}%"
    return f"{share:.0%}"


@contextmanager
def progress(
    steps_per_run: int, runs: int = 1, stream: TextIO | None = None
) -> Iterator[ProgressDisplay]:
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
