"""The runs of a study, several at a time, each in a process of its own that shares the data it was forked with.

Runs side by side with one worker each need no exchange between processes, so they use the cores better than one run
with several workers; only the last ones, when there are fewer runs than cores, get more than one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from fedlama.base import DivergenceError, InputError, RunError
from fedlama.core import BYTES_PER_NUMBER
from fedlama.processes.devices import is_on_gpu, max_workers
from fedlama.processes.forking import Emit, Failure, Forked, Forks, FromChild, Item
from fedlama.processes.memory import available_memory
from fedlama.processes.signals import stop_on_signals
from fedlama.processes.world import launched_by_torchrun
from fedlama.rows import describe
from fedlama.run.execute import execute
from fedlama.run.files import OUT_OPTION, write_atomically
from fedlama.run.resolve import Resolved
from fedlama.study.begun import CHECKPOINTS_OPTION, is_begun, write_note
from fedlama.study.cells import DIVERGED, OnNews, is_done, resolved
from fedlama.study.going_on import unfinished
from fedlama.study.settings import Cell
from fedlama.study.sitting import Sitting, deliver, take_along
from fedlama.training import Record


def cells_at_once(cells: Sequence[Cell], workers: int) -> int:
    """How many runs go side by side: one per worker, or as many as have room for their rows."""
    if any(is_on_gpu(cell.config.train.device) for cell in cells):
        # One after the other, each on all GPUs: side by side, all of them would compute on the first one.
        return 1
    available = available_memory()
    if not cells or available is None:
        return workers

    one_of_each_setting: dict[str, Cell] = {}
    for cell in cells:
        # The first seed's is built already
        one_of_each_setting.setdefault(cell.setting, cell)
    largest = 0
    for cell in one_of_each_setting.values():
        run = resolved(cell)
        largest = max(largest, _row_bytes(run))

    # Gradients, averages and activations come on top of the rows.
    needed = 2 * largest
    that_fit = available // needed
    return max(1, min(workers, that_fit))


def _row_bytes(run: Resolved) -> int:
    """What the clients of a run keep in memory."""
    # Shapes only
    with torch.device("meta"):
        layout = describe(run.model())

    bytes_per_row = BYTES_PER_NUMBER * layout.width
    # Beside the model, what its local rule and its code remember
    slots = [*run.local.slots]
    if run.uplink is not None:
        slots += run.uplink.slots
    rows_per_client = 1 + len(slots)
    clients = run.participation.count(len(run.shards))
    return clients * rows_per_client * bytes_per_row


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    workers: int,
    watch: OnNews,
    sitting: Sitting | None = None,
) -> None:
    """Run these cells into `out`, as many at a time as there are workers and memory.

    One that diverges is noted, and the others go on. Anything else that goes wrong stops all of them, after each has
    saved a checkpoint; Ctrl-C does the same, and so does the end of the sitting.
    """
    if launched_by_torchrun():
        raise InputError(
            "a study's runs share one machine: without torchrun it uses all cores; torchrun is for fedlama run"
        )
    with Forks() as forks:
        side_by_side = _SideBySide(
            cells=cells,
            out=out,
            workers=workers,
            watch=watch,
            forks=forks,
            sitting=sitting or Sitting(),
        )
        with stop_on_signals(side_by_side.stop):
            side_by_side.run()


class _SideBySide:
    """Cells that are waiting, and those that are running."""

    def __init__(
        self,
        cells: Sequence[Cell],
        out: Path,
        workers: int,
        watch: OnNews,
        forks: Forks,
        sitting: Sitting,
    ) -> None:
        self.cells = cells
        self.waiting = list(cells)
        self.out = out
        self.workers = workers
        self.watch = watch
        self.forks = forks
        self.sitting = sitting
        self.at_once = cells_at_once(cells, workers)

        # Of those that run
        self.cell_of: dict[Forked, Cell] = {}
        self.workers_of: dict[Forked, int] = {}

        # Why no more are started
        self.failures: list[Exception] = []
        self.stopped = False
        self.time_is_up = False

    def run(self) -> None:
        """Until all are done, or those that run have stopped."""
        while self.cell_of or (self.waiting and not self._is_ending()):
            if not self._is_ending():
                self._start_as_many_as_fit()
            for process, message in self.forks.listen(timeout=1.0):
                self._take(process, message)

            if self.sitting.is_over() and not self._is_ending():
                self.time_is_up = True
                self._ask_all_to_stop()
        self.sitting.drop_empty(self.out, [cell.path for cell in self.cells])
        self._raise_what_ended_it()

    def _raise_what_ended_it(self) -> None:
        """Nothing, if all of them are done."""
        left = [cell for cell in self.cells if not is_done(self.out, cell)]
        # None is left if the last ones ended just then
        if self.time_is_up and not self.stopped and left:
            raise RunError(
                f"stopped after {self.sitting.minutes:g} minutes, as asked, {self._left_text(left)}; the same command "
                f"goes on from here"
            )
        if self.stopped and left:
            raise RunError(
                f"stopped, as asked, {self._left_text(left)}; the same command goes on from here"
            )
        if self.stopped:
            raise RunError("stopped, as asked; the same command goes on from here")
        if self.failures:
            raise self.failures[0]

    def _left_text(self, left: Sequence[Cell]) -> str:
        """`with 4 of 6 runs left: 1 begun, with checkpoints in kept, and 3 not begun`."""
        begun = 0
        places: set[str] = set()
        for cell in left:
            run = unfinished(cell, self.out, self.sitting)
            if not run.taken:
                continue
            begun += 1
            at_home = run.furthest == self.out / cell.path
            place = self.sitting.keeps_in
            if at_home or place is None:
                place = self.out
            places.add(str(place))

        text = f"with {len(left)} of {len(self.cells)} runs left"
        if not begun:
            return f"{text}, none of them begun"
        where = " and ".join(sorted(places))
        others = len(left) - begun
        if not others:
            return f"{text}, all of them begun, with checkpoints in {where}"
        return f"{text}: {begun} begun, with checkpoints in {where}, and {others} not begun"

    def stop(self) -> None:
        """Let the running cells finish their cycle and save."""
        self.stopped = True
        self._ask_all_to_stop()
        print(
            "\nfedlama: finishing the running cycles to save them; once more stops at once",
            file=sys.stderr,
        )

    def _is_ending(self) -> bool:
        if self.stopped or self.time_is_up:
            return True
        return bool(self.failures)

    def _ask_all_to_stop(self) -> None:
        for forked in list(self.cell_of):
            pid = forked.process.pid
            if pid is None:
                continue
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _start_as_many_as_fit(self) -> None:
        free = self.workers - sum(self.workers_of.values())
        while self.waiting and free > 0:
            places = self.at_once - len(self.cell_of)
            if places <= 0 or self._is_ending():
                return

            # Fewer runs than workers share them all; otherwise each has one.
            to_share = min(len(self.waiting), places)
            share = max(1, free // to_share)
            cell = self.waiting.pop(0)
            device = cell.config.train.device
            allowed = max_workers(device)
            if allowed is not None:
                share = min(share, allowed)

            self._start(cell, share)
            free -= share

    def _start(self, cell: Cell, workers: int) -> None:
        home = self.out / cell.path
        workplace = self.sitting.workplace(self.out, cell.path)
        option = OUT_OPTION
        if workplace != home:
            option = CHECKPOINTS_OPTION

        def work(emit: Emit) -> None:
            take_along(home, workplace)
            note = _Note(home, workplace, self.sitting.keeps_in)
            if is_begun(workplace):
                note.write()
            try:
                execute(
                    resolved(cell),
                    workplace,
                    [note, emit],
                    workers=workers,
                    resume=True,
                    quiet=True,
                    option=option,
                )
            except DivergenceError:
                deliver(workplace, home)
                raise
            deliver(workplace, home)

        process = self.forks.start(work, _lead_own_group, daemon=False)
        self.cell_of[process] = cell
        self.workers_of[process] = workers

    def _take(self, process: Forked, message: FromChild) -> None:
        cell = self.cell_of[process]
        if isinstance(message, Item):
            self.watch(cell, message.content)
            return

        process.process.join()
        code = process.process.exitcode
        del self.cell_of[process]
        del self.workers_of[process]
        self.forks.forget(process)

        if not isinstance(message, Failure):
            self.watch(cell, "done")
        elif message.kind == "DivergenceError":
            self._note_divergence(cell, message.text)
            self.watch(cell, "diverged")
        else:
            self._note_failure(cell, message, code)

    def _note_divergence(self, cell: Cell, text: str) -> None:
        folder = self.out / cell.path
        folder.mkdir(parents=True, exist_ok=True)
        # The same configuration would diverge again: it is not run any more.
        write_atomically(folder / DIVERGED, text + "\n")

    def _note_failure(self, cell: Cell, failure: Failure, code: int | None) -> None:
        text = failure.text or f"its process ended with code {code}"
        # Once is enough: nothing is started after the first failure.
        if not self.failures:
            self._ask_all_to_stop()

        named = Failure(failure.kind, f"{cell.label}: {text}")
        error = named.error()
        if error is None:
            error = RunError(named.text)
        self.failures.append(error)


class _Note:
    """Notes at a run's home where else it is kept, once there is something of it: at the first record, not before.

    What is kept at home needs no note. One of an earlier sitting stays until the run is finished: it may be further
    there.
    """

    def __init__(self, home: Path, workplace: Path, checkpoints: Path | None) -> None:
        self.home = home
        self.workplace = workplace
        self.checkpoints = checkpoints
        self.is_written = False

    def __call__(self, record: Record) -> None:
        """Take a record of the run."""
        if not self.is_written:
            self.write()

    def write(self) -> None:
        """Say where it is."""
        self.is_written = True
        if self.checkpoints is None or self.workplace == self.home:
            return
        write_note(self.home, self.workplace, self.checkpoints)


def _lead_own_group() -> None:
    """Ctrl-C goes to the study's group only: the study decides what it means, and asks its runs with SIGTERM."""
    os.setpgid(0, 0)
