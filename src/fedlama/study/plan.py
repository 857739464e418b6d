"""What a study will take, said before anything is spent: runs, the steps of their clients, hours on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from fedlama.base.times import about
from fedlama.processes.cpu import cpu_type
from fedlama.processes.devices import default_workers
from fedlama.run.resolve import Resolved
from fedlama.study.cells import check_same_config, is_done, resolved
from fedlama.study.going_on import (
    Unfinished,
    check_begun,
    check_workplace,
    unfinished,
    warnings_of_lost_runs,
)
from fedlama.study.settings import Cell, Study
from fedlama.study.sitting import Sitting
from fedlama.study.speed import (
    Amount,
    Kind,
    Speed,
    amount_of,
    kind_of,
    measured,
    total_seconds,
)

Studies = Sequence[tuple[Study, Path]]  # each with the folder that it is written to
Sittings = Mapping[Path, Sitting]  # by the folder of a study, where it works
# Something to count and to measure, in place of a run whose data may not be there
StandIn = Callable[[Cell], Resolved]


@dataclass(frozen=True)
class MissingRun:
    """A run that is missing, and what is left of it to compute."""

    cell: Cell
    kind: Kind
    left: Amount


@dataclass(frozen=True)
class Plan:
    """What is missing of some studies.

    Arguments:
        missing: The runs to train.
        finished: How many there are already.
        processes: How many of them run at a time.
        seconds: How long that takes on this machine; None where it was not measured.
    """

    missing: tuple[MissingRun, ...]
    finished: int
    processes: int
    seconds: float | None = None

    @property
    def client_steps(self) -> int:
        """Of all clients in all runs."""
        return sum(run.left.client_steps for run in self.missing)

    @property
    def pilots(self) -> int:
        """How many of the runs choose a learning rate."""
        return sum(run.cell.rate is not None for run in self.missing)


def announce(
    studies: Studies,
    workers: int | None,
    stream: TextIO | None = None,
    *,
    sittings: Sittings | None = None,
    stand_in: StandIn | None = None,
) -> Plan:
    """Print what these studies will take: the counts at once, the time after a few measured steps.

    Arguments:
        studies: What is to be run.
        workers: How many processes may run at a time (default: one per GPU, or one per core).
        stream: Where it is printed (default: standard error).
        sittings: Where unfinished runs are kept, by the folder of their study (default: in it).
        stand_in: What is counted and measured for a run, where nothing is to be trained (default: the run itself, for
            which its data is needed).
    """
    out: TextIO = stream or sys.stderr
    check_folders(studies, sittings, built=stand_in is None)
    runs = _missing(studies, sittings)
    for warning in warnings_of_lost_runs(runs):
        print(f"fedlama: {warning}", file=out, flush=True)
    plan, examples = counted(studies, workers, sittings, stand_in)
    print(f"plan: {amount_text(plan)}", file=out, flush=True)
    if not plan.missing:
        return plan

    speeds = measured(list(examples.values()))
    speed_of = dict(zip(examples, speeds, strict=True))
    seconds = estimated(plan, speed_of)

    plan = replace(plan, seconds=seconds)
    print(f"plan: {time_text(plan)}", file=out, flush=True)
    return plan


def check_folders(
    studies: Studies, sittings: Sittings | None = None, *, built: bool = True
) -> None:
    """Refuse runs of another configuration, before a plan counts them as done, and folders that cannot be written.

    Of the finished runs one of each setting is looked at, as running the study looks at all of them. Begun runs are all
    looked at: the ones that wait would show only after others were trained.

    Arguments:
        studies: What is to be run.
        sittings: Where unfinished runs are kept, by the folder of their study (default: in it).
        built: Whether runs may be built to be compared, for which the data is needed.
    """
    for study, out in studies:
        # Where pilots choose learning rates, what the table's runs have is not known yet.
        skipped: set[str] = set()
        for setting in study.settings:
            if setting.learning_rates:
                skipped.add(setting.name)

        for cell in study.cells({}):
            if cell.setting in skipped or not is_done(out, cell):
                continue
            # One of each setting is enough.
            skipped.add(cell.setting)
            check_same_config(out, cell, built=built)

    for run in _missing(studies, sittings):
        check_workplace(run)
        check_begun(run, built=built)


def planned(studies: Studies) -> list[Cell]:
    """Every run that these studies still need, whatever learning rates will be chosen; two may share a folder."""
    return [run.cell for run in _missing(studies)]


def _missing(studies: Studies, sittings: Sittings | None = None) -> list[Unfinished]:
    """Every run that these studies still need, with where it is; two studies may share a folder and its runs."""
    known_sittings = sittings or {}
    missing: dict[Path, Unfinished] = {}  # by the folder of the run
    for study, out in studies:
        sitting = known_sittings.get(out, Sitting())
        rates: dict[str, tuple[float, ...]] = {}
        for setting in study.settings:
            rates[setting.name] = setting.learning_rates
        for cell in _every_cell(study):
            if is_done(out, cell):
                continue
            run = unfinished(cell, out, sitting)
            is_chosen = cell.rate is None
            if is_chosen:
                run = replace(run, rates=rates[cell.setting])
            missing[run.home] = run
    return list(missing.values())


def _every_cell(study: Study) -> list[Cell]:
    """Pilots and the runs of the table, whose folders do not depend on the learning rates that pilots choose; of a
    study of which only some runs are wanted, those."""
    return study.selected_of([*study.pilots(), *study.cells({})])


def counted(
    studies: Studies,
    workers: int | None,
    sittings: Sittings | None = None,
    stand_in: StandIn | None = None,
) -> tuple[Plan, dict[Kind, Resolved]]:
    """What is missing, without a measurement, and one run of each kind to measure.

    Arguments:
        studies: What is to be run.
        workers: How many processes may run at a time (default: one per GPU, or one per core).
        sittings: Where unfinished runs are kept, by the folder of their study (default: in it).
        stand_in: What is counted for a run (default: the run itself).
    """
    build = stand_in or resolved
    folders: set[Path] = set()
    devices: set[str] = set()
    for study, out in studies:
        for cell in _every_cell(study):
            folders.add(out / cell.path)
            devices.add(cell.config.train.device)

    missing: list[MissingRun] = []
    examples: dict[Kind, Resolved] = {}
    built: dict[tuple[str, bool, int], Resolved] = {}
    for run_left in _missing(studies, sittings):
        cell = run_left.cell
        # Seeds and learning rates take the same time; a study may be shorter, or a pilot.
        is_chosen = cell.rate is None
        iterations = cell.config.train.iterations
        like = (cell.setting, is_chosen, iterations)
        if like not in built:
            built[like] = build(cell)
        run = built[like]

        kind = kind_of(cell.config)
        examples.setdefault(kind, run)
        # A run that was interrupted goes on from its last checkpoint.
        left = amount_of(run, run_left.taken)
        missing.append(MissingRun(cell, kind, left))

    processes = workers
    if not processes:
        processes = min(default_workers(device) for device in devices)
    plan = Plan(
        missing=tuple(missing),
        finished=len(folders) - len(missing),
        processes=processes,
    )
    return plan, examples


def estimated(plan: Plan, speeds: Mapping[Kind, Speed | None]) -> float | None:
    """Seconds for all of it; None where that was not measured.

    Arguments:
        plan: What is to be run.
        speeds: What was measured.
    """
    amounts = [(run.kind, run.left) for run in plan.missing]
    total = total_seconds(amounts, speeds)
    if total is None:
        return None
    return total / plan.processes


def amount_text(plan: Plan) -> str:
    """`13 runs and 9 pilots to train, 1,296 client steps; 2 runs are finished`."""
    finished = _runs(plan.finished)
    if not plan.missing:
        return f"nothing to train: {finished} finished already"

    runs = len(plan.missing) - plan.pilots
    parts = _count(runs, "run")
    if plan.pilots:
        pilots = _count(plan.pilots, "pilot")
        parts += f" and {pilots}"

    text = f"{parts} to train, {plan.client_steps:,} client steps in all"
    if plan.finished:
        text += f"; {finished} finished already"
    return text


def time_text(plan: Plan) -> str:
    """`about 2.5 h on this machine (2 processes; AMD EPYC, AVX512), after a few measured steps`."""
    processes = _count(plan.processes, "process")
    machine = f"{processes}; {cpu_type()}"
    if plan.seconds is None:
        return f"how long that takes could not be measured within a few seconds: it will be long ({machine})"
    time = about(plan.seconds)
    return f"{time} on this machine ({machine}), after a few measured steps"


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
