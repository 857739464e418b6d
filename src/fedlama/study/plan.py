"""What a study will take, said before anything is spent: runs, the steps of their clients, hours on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from fedlama.base.times import about
from fedlama.processes.cpu import cpu_type
from fedlama.processes.devices import default_workers
from fedlama.run.directory import CHECKPOINTS
from fedlama.run.resolve import Resolved
from fedlama.study.cells import check_same_config, is_done, resolved
from fedlama.study.speed import (
    Amount,
    Kind,
    Speed,
    amount_of,
    kind_of,
    measured,
    total_seconds,
)
from fedlama.study.study_file import Cell, Study

Studies = Sequence[tuple[Study, Path]]  # each with the folder that it is written to


@dataclass(frozen=True)
class Job:
    """A run that is missing, and what is left of it to compute."""

    cell: Cell
    kind: Kind
    left: Amount


@dataclass(frozen=True)
class Plan:
    """What is missing of some studies.

    Arguments:
        jobs: The runs to train.
        finished: How many there are already.
        processes: How many of them run at a time.
        seconds: How long that takes on this machine; None where it was not measured.
    """

    jobs: tuple[Job, ...]
    finished: int
    processes: int
    seconds: float | None = None

    @property
    def client_steps(self) -> int:
        """Of all clients in all runs."""
        return sum(job.left.client_steps for job in self.jobs)

    @property
    def pilots(self) -> int:
        """How many of the runs choose a learning rate."""
        return sum(job.cell.rate is not None for job in self.jobs)


def announce(
    studies: Studies, workers: int | None, stream: TextIO | None = None
) -> Plan:
    """Print what these studies will take: the counts at once, the time after a few measured steps.

    Arguments:
        studies: What is to be run.
        workers: How many processes may run at a time (default: one per GPU, or one per core).
        stream: Where it is printed (default: standard error).
    """
    out: TextIO = stream or sys.stderr
    check_folders(studies)
    plan, examples = counted(studies, workers)
    print(f"plan: {amount_text(plan)}", file=out, flush=True)
    if not plan.jobs:
        return plan

    speeds = dict(zip(examples, measured(list(examples.values())), strict=True))
    plan = replace(plan, seconds=estimated(plan, speeds))
    print(f"plan: {time_text(plan)}", file=out, flush=True)
    return plan


def check_folders(studies: Studies) -> None:
    """Refuse folders with finished runs of another configuration, before a plan counts them as done.

    One run of each setting is looked at; running the study looks at all of them.

    Arguments:
        studies: What is to be run.
    """
    for study, out in studies:
        seen: set[str] = set()
        # Where pilots choose learning rates, what the table's runs have is not known yet.
        chosen = {setting.name for setting in study.settings if setting.learning_rates}
        for cell in study.cells({}):
            if cell.setting in chosen or cell.setting in seen or not is_done(out, cell):
                continue
            seen.add(cell.setting)
            check_same_config(out, cell)


def planned(studies: Studies) -> list[Cell]:
    """Every run that these studies still need, whatever learning rates will be chosen; two may share a folder."""
    return list(_missing(studies).values())


def _missing(studies: Studies) -> dict[Path, Cell]:
    """By the folder of the run."""
    missing: dict[Path, Cell] = {}
    for study, out in studies:
        for cell in (*study.pilots(), *study.cells({})):
            if not is_done(out, cell):
                missing[out / cell.path] = cell
    return missing


def counted(studies: Studies, workers: int | None) -> tuple[Plan, dict[Kind, Resolved]]:
    """What is missing, without a measurement, and one run of each kind to measure.

    Arguments:
        studies: What is to be run.
        workers: How many processes may run at a time (default: one per GPU, or one per core).
    """
    every: set[Path] = set()
    devices: set[str] = set()
    for study, out in studies:
        for cell in (*study.pilots(), *study.cells({})):
            every.add(out / cell.path)
            devices.add(cell.config.train.device)

    jobs: list[Job] = []
    examples: dict[Kind, Resolved] = {}
    built: dict[tuple[str, bool, int], Resolved] = {}
    for folder, cell in _missing(studies).items():
        # Seeds and learning rates take the same time; a study may be shorter, or a pilot.
        is_chosen = cell.rate is None
        like = (cell.setting, is_chosen, cell.config.train.iterations)
        if like not in built:
            built[like] = resolved(cell)
        run = built[like]
        kind = kind_of(cell.config)
        examples.setdefault(kind, run)
        amount = amount_of(run, _steps_taken(folder))
        jobs.append(Job(cell, kind, amount))

    processes = workers
    if not processes:
        processes = min(default_workers(device) for device in devices)
    finished = len(every) - len(jobs)
    return Plan(tuple(jobs), finished, processes), examples


def _steps_taken(folder: Path) -> int:
    """The step of a run's last checkpoint, from which it will go on."""
    steps = [0]
    for file in folder.glob(f"{CHECKPOINTS}/step-*.json"):
        digits = file.stem.removeprefix("step-")
        if digits.isdecimal():
            steps.append(int(digits))
    return max(steps)


def estimated(plan: Plan, speeds: Mapping[Kind, Speed | None]) -> float | None:
    """Seconds for all of it; None where that was not measured.

    Arguments:
        plan: What is to be run.
        speeds: What was measured.
    """
    total = total_seconds([(job.kind, job.left) for job in plan.jobs], speeds)
    if total is None:
        return None
    return total / plan.processes


def amount_text(plan: Plan) -> str:
    """`13 runs and 9 pilots to train, 1,296 client steps; 2 runs are finished`."""
    if not plan.jobs:
        return f"nothing to train: {_runs(plan.finished)} finished already"

    runs = len(plan.jobs) - plan.pilots
    parts = _count(runs, "run")
    if plan.pilots:
        parts += f" and {_count(plan.pilots, 'pilot')}"
    text = f"{parts} to train, {plan.client_steps:,} client steps in all"
    if plan.finished:
        text += f"; {_runs(plan.finished)} finished already"
    return text


def time_text(plan: Plan) -> str:
    """`about 2.5 h on this machine (2 processes; AMD EPYC, AVX512), after a few measured steps`."""
    machine = f"{_count(plan.processes, 'process')}; {cpu_type()}"
    if plan.seconds is None:
        return f"how long that takes could not be measured within a few seconds: it will be long ({machine})"
    return (
        f"{about(plan.seconds)} on this machine ({machine}), after a few measured steps"
    )


def _runs(count: int) -> str:
    if count == 1:
        return "1 run is"
    return f"{count:,} runs are"


def _count(count: int, word: str) -> str:
    if count == 1:
        return f"1 {word}"
    ending = "s"
    if word.endswith("s"):
        ending = "es"
    return f"{count:,} {word}{ending}"
