"""The runs of a study, several at a time, each in a process of its own that shares the data it was forked with.

Runs side by side with one worker each need no exchange between processes, so they use the cores better than one run
with several workers; only the last ones, when there are fewer runs than cores, get more than one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

import torch

from fedlama.base import DivergenceError, InputError, RunError
from fedlama.processes.memory import available_memory
from fedlama.processes.workers import SENTENCES, die_with_parent
from fedlama.processes.world import launched_by_torchrun
from fedlama.rows import describe
from fedlama.run.checkpoints import changed_keys
from fedlama.run.config import Config, as_written_today, read_toml
from fedlama.run.default_models import model_builder
from fedlama.run.execute import SAME_SIGNAL, execute, prepared_data, resolve
from fedlama.run.files import write_atomically
from fedlama.study.runs import load_run
from fedlama.study.sitting import Sitting, deliver, take_along
from fedlama.study.study_file import Cell
from fedlama.training import Record

DIVERGED = "diverged.txt"  # beside a run that did: the same configuration would do so again

# What is told of a cell: each record, and how it ended
End = Literal["done", "diverged"]
Watch = Callable[[Cell, Record | End], None]


@dataclass
class _Running:
    cell: Cell
    process: BaseProcess
    messages: Connection
    workers: int


def is_done(out: Path, cell: Cell) -> bool:
    """Whether this cell needs no run any more: it is finished, or it diverged."""
    return (out / cell.path / "summary.json").is_file() or (out / cell.path / DIVERGED).is_file()


def score_of(out: Path, cell: Cell) -> tuple[float | None, float] | None:
    """A finished cell's accuracy, if it has one, and loss; None if it diverged."""
    if (out / cell.path / DIVERGED).is_file():
        return None
    try:
        summary = load_run(out / cell.path).summary
    except InputError as error:
        raise InputError(f"{error}; delete that folder to run it again") from None
    return (summary["accuracy"], summary["loss"]) if summary else None


def check_same_config(out: Path, cell: Cell) -> None:
    """Refuse a finished run of another configuration: its result is not this study's."""
    path = out / cell.path / "config.toml"
    if not path.is_file():  # it diverged in its first round
        return
    before = as_written_today(read_toml(path))
    now = resolve(cell.config).model_dump(exclude_none=True)
    # Keys that only one version of fedlama knows, and the versions themselves, do not make another configuration
    comparable = {
        name: {key: table[key] for key in before[name] if key in table} if isinstance(table, dict) else table
        for name, table in now.items()
        if name in before
    }
    known = {
        name: {key: before[name][key] for key in table} if isinstance(table, dict) else before[name]
        for name, table in comparable.items()
    }
    different = [key for key in changed_keys(known, comparable) if not key.startswith("versions.")]
    if different:
        raise InputError(
            f"{path.parent} holds a run of another configuration ({', '.join(different)}): choose another --out, or "
            f"delete that folder"
        )


def cells_at_once(cells: Sequence[Cell], workers: int) -> int:
    """How many runs go side by side: one a worker, or as many as have room for their rows."""
    available = available_memory()
    if not cells or available is None:
        return workers
    largest = max(_row_bytes(config) for config in {cell.setting: cell.config for cell in cells}.values())
    return max(1, min(workers, available // (2 * largest)))  # twice: gradients, averages and activations come on top


def _row_bytes(config: Config) -> int:
    config = resolve(config)
    with torch.device("meta"):  # shapes only
        width = describe(model_builder(config.model.name or "", prepared_data(config))()).width
    clients = config.participation.build().count(config.partition.clients or 1)
    return 4 * width * clients * (1 + len(config.local.build().slots))


def run_cells(cells: Sequence[Cell], out: Path, workers: int, watch: Watch, sitting: Sitting | None = None) -> None:
    """Run these cells into `out`, as many at a time as there are workers and memory.

    One that diverges is noted, and the others go on. Anything else that goes wrong stops all of them, after each has
    saved a checkpoint; Ctrl-C does the same, and so does the end of the sitting.
    """
    sitting = sitting or Sitting()
    if launched_by_torchrun():
        raise InputError(
            "a study's runs share one machine: without torchrun it uses all cores; torchrun is for fedlama run"
        )
    waiting, running, failures = list(cells), list[_Running](), list[Exception]()
    at_once = cells_at_once(cells, workers)
    with _stopping(running) as asked:
        try:
            while running or (waiting and not failures and not asked.is_set()):
                free = workers - sum(one.workers for one in running)
                while waiting and free > 0 and len(running) < at_once and not failures and not asked.is_set():
                    share = max(1, free // min(len(waiting), at_once - len(running)))
                    running.append(_start(waiting.pop(0), out, share, sitting))
                    free -= share
                _listen(running, out, watch, failures)
                if sitting.is_over() and not asked.is_set():
                    asked.set()
                    for one in running:
                        _ask(one)
        finally:
            for one in running:
                one.process.kill()
                one.process.join()
    if asked.is_set() and sitting.is_over() and not cells_left(cells, out):
        return  # the last cells ended while they were asked to stop
    if asked.is_set() and sitting.is_over():
        raise RunError(
            f"stopped after {sitting.minutes:g} minutes, as asked, with {cells_left(cells, out)} of {len(cells)} runs "
            f"left and their checkpoints saved; the same command goes on from here"
        )
    if asked.is_set():
        raise RunError("stopped, as asked; the same command goes on from here")
    if failures:
        raise failures[0]


def cells_left(cells: Sequence[Cell], out: Path) -> int:
    """How many of these cells still need a run."""
    return sum(not is_done(out, cell) for cell in cells)


def _start(cell: Cell, out: Path, workers: int, sitting: Sitting) -> _Running:
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_cell_main, args=(cell, out, workers, sitting, receiver, sender))
    process.start()
    sender.close()
    return _Running(cell, process, receiver, workers)


def _cell_main(cell: Cell, out: Path, workers: int, sitting: Sitting, receiver: Connection, sender: Connection) -> None:
    receiver.close()
    torch.set_num_threads(1)  # a fork has none of its parent's threads, and torch would wait for them for ever
    die_with_parent()
    os.setpgid(0, 0)  # Ctrl-C is the study's to understand, which then asks with SIGTERM
    home = out / cell.path
    workplace = sitting.workplace(out, cell.path)
    try:
        take_along(home, workplace)
        try:
            execute(cell.config, workplace, [sender.send], workers=workers, resume=True, quiet=True)
        except DivergenceError:
            deliver(workplace, home)
            raise
        deliver(workplace, home)
        sender.send(None)
    except BrokenPipeError:
        os._exit(1)
    except BaseException as error:
        kind = type(error).__name__
        text = str(error) if kind in SENTENCES or isinstance(error, OSError) else traceback.format_exc()
        with suppress(OSError):
            sender.send((kind, text))
        os._exit(1)


def _listen(running: list[_Running], out: Path, watch: Watch, failures: list[Exception]) -> None:
    """Take what the running cells have to say, once."""
    for ready in connection.wait([one.messages for one in running], timeout=1.0):
        one = next(one for one in running if one.messages is ready)
        try:
            message = one.messages.recv()
        except EOFError:
            message = ("", "")
        if isinstance(message, Record):
            watch(one.cell, message)
            continue
        one.process.join()
        one.messages.close()
        running.remove(one)
        if message is None:
            watch(one.cell, "done")
        elif _is_divergence(one, out, message, running, failures):
            watch(one.cell, "diverged")


def _is_divergence(
    one: _Running, out: Path, message: tuple[str, str], running: Sequence[_Running], failures: list[Exception]
) -> bool:
    """Note a run that diverged; with any other failure ask the others to stop."""
    kind, text = message
    if kind == "DivergenceError":
        (out / one.cell.path).mkdir(parents=True, exist_ok=True)
        write_atomically(out / one.cell.path / DIVERGED, text + "\n")
        return True
    code = one.process.exitcode
    died = f"its process ended with code {code}" if code and not text else text
    if not failures:
        for other in running:
            _ask(other)
    failures.append(SENTENCES.get(kind, RunError)(f"{one.cell.label}: {died}"))
    return False


def _ask(one: _Running) -> None:
    """To finish the cycle, save and stop."""
    if one.process.pid is not None:
        with suppress(ProcessLookupError):
            os.kill(one.process.pid, signal.SIGTERM)


@contextmanager
def _stopping(running: list[_Running]) -> Iterator[threading.Event]:
    """The first Ctrl-C or SIGTERM lets the running cells finish their cycle and save; a second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    first = 0.0

    def ask(number: int, frame: object) -> None:
        nonlocal first
        if asked.is_set() and time.monotonic() - first > SAME_SIGNAL:
            raise KeyboardInterrupt
        if asked.is_set():
            return
        first = time.monotonic()
        asked.set()
        for one in running:
            _ask(one)
        print("\nfedlama: finishing the running cycles to save them; once more stops at once", file=sys.stderr)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
