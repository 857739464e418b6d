"""The driver: prepare the data, run the contestants in turn, print one table.

A first, untimed pass measures memory and shows which contestants work. Then the bare loop and fedlama take turns, of
half a second or of a cycle, and a ratio compares turns that follow each other. The programs of others cannot be stopped
and let go on like that: every repetition runs all of a job one after the other, each time beginning with another, and a
ratio compares runs of the same repetition.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks.job import CYCLE, Job
from benchmarks.jobs import JOBS, growing, prepare
from benchmarks.measure import CONTESTANTS, run
from benchmarks.table import CORES, Entry, Results, hardware
from benchmarks.turns import TurnError, take_turns


def main() -> None:
    options = parse()
    # Ends the contestants on the way out
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # For all contestants, on any machine
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    started = time.monotonic()
    about = hardware()
    with tempfile.TemporaryDirectory(prefix="fedlama-bench-data-") as folder:
        jobs, sources = [], {}
        for job in chosen_jobs(options):
            prepared, source = prepare(job, Path(folder))
            jobs.append(prepared)
            sources[job.name] = source
        about["data"] = ", ".join(
            f"{name} {source}" for name, source in sources.items()
        )
        about["seed"] = jobs[0].seed
        fields = [
            [
                Entry(job, name)
                for name in options.contestants
                if job.name in CONTESTANTS[name].jobs
            ]
            for job in jobs
        ]
        for field in fields:
            measure_memory(field)
        for field in fields:
            by_turns(field, options)
        repeat(fields, options, deadline=started + 60 * options.minutes)
    about["took"] = f"{(time.monotonic() - started) / 60:.0f} minutes"
    results = Results(
        [entry for field in fields for entry in field], about, checked=not options.quick
    )
    results.show(Console(width=140))
    if options.write:
        write(results, options.write)


def chosen_jobs(options: argparse.Namespace) -> list[Job]:
    """The jobs that were asked for, at the size that was asked for."""
    jobs: list[Job] = []
    for name, whole in JOBS.items():
        if name not in options.jobs:
            continue
        chosen = whole
        if options.quick:
            chosen = chosen.but(rounds=CYCLE, warmup=1)
            if name in ("A", "B"):
                chosen = chosen.but(steps=1)
        if options.rounds:
            cycles = -(-options.rounds // CYCLE)
            chosen = chosen.but(rounds=cycles * CYCLE)
        jobs.append(chosen)
    if "D" in options.jobs:
        jobs += [job for job in growing(options.quick) if options.only in job.title]
    return jobs


def measure_memory(field: list[Entry]) -> None:
    """A short run of every contestant; who fails here is not run again."""
    for entry in field:
        contestant = CONTESTANTS[entry.contestant]
        if contestant.memory and (
            entry.contestant == "fedlama" or entry.job.name != "D"
        ):
            tell("memory", entry)
            short = entry.job.but(steps=min(entry.job.steps, 2), rounds=CYCLE, warmup=1)
            entry.take(run(contestant, short, memory=True), 0)


def by_turns(field: list[Entry], options: argparse.Namespace) -> None:
    """The contestants of a job that can take turns, if there is more than one."""
    players: list[Entry] = []
    for entry in field:
        contestant = CONTESTANTS[entry.contestant]
        if contestant.takes_turns and not entry.failure:
            players.append(entry)
    if len(players) < 2 or not options.turns:
        return
    contestants = [CONTESTANTS[entry.contestant] for entry in players]
    for entry in players:
        tell("turns", entry)
    try:
        found = take_turns(
            contestants, players[0].job, options.turns, options.turn_minutes * 60
        )
    except TurnError as error:
        print(f"no turns: {error}", file=sys.stderr)
        return
    for entry, seconds in zip(players, found, strict=True):
        entry.turns = seconds


def is_run_alone(entry: Entry, field: list[Entry]) -> bool:
    """Whether a contestant is timed in a program by itself: beside those that cannot take turns."""
    if entry.failure:
        return False
    if not entry.turns:
        return True
    needed = any(not CONTESTANTS[other.contestant].takes_turns for other in field)
    return needed and CONTESTANTS[entry.contestant].runs_alone


def repeat(
    fields: list[list[Entry]], options: argparse.Namespace, deadline: float
) -> None:
    """All repetitions of all jobs, as far as the time goes; a job's repetition is run whole or not at all."""
    took: dict[int, float] = defaultdict(float)
    for repetition in range(options.repeats):
        for number, field in enumerate(fields):
            if repetition and time.monotonic() + took[number] > deadline:
                continue
            began = time.monotonic()
            first = repetition % len(field)
            for entry in field[first:] + field[:first]:
                if is_run_alone(entry, field):
                    tell(f"repetition {repetition + 1}", entry)
                    outcome = run(CONTESTANTS[entry.contestant], entry.job)
                    entry.take(outcome, repetition)
            took[number] = time.monotonic() - began


def tell(what: str, entry: Entry) -> None:
    print(
        f"{what}: {entry.job.name} {entry.job.title}: {CONTESTANTS[entry.contestant].name}",
        file=sys.stderr,
    )


def write(results: Results, path: Path) -> None:
    """Markdown, and beside it JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(results.as_markdown(), encoding="utf-8")
    text = json.dumps(results.as_json(), indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--jobs",
        type=names_of({*JOBS, "D"}),
        default=[*JOBS, "D"],
        help="of A, B, C, D",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="of job D only the points whose name has this text in it",
    )
    parser.add_argument(
        "--contestants",
        type=names_of(set(CONTESTANTS)),
        default=list(CONTESTANTS),
        help=f"of {', '.join(CONTESTANTS)}",
    )
    parser.add_argument(
        "--turns", type=int, default=9, help="of the bare loop and fedlama; 0: none"
    )
    parser.add_argument(
        "--turn-minutes",
        type=float,
        default=1.0,
        help="per job; each has three turns in any case",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="of every run without turns"
    )
    parser.add_argument(
        "--rounds", type=int, help="timed rounds per run, in place of the jobs' own"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=45,
        help="begin no repetition that would end later",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny settings: does it work?"
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE.md",
        help="also write Markdown and, beside it, JSON",
    )
    options = parser.parse_args()
    if options.quick:
        options.repeats = 1
        options.turns = min(options.turns, 1)
    return options


def names_of(allowed: set[str]) -> Callable[[str], list[str]]:
    """A comma-separated list of known names."""

    def parse_names(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is not one of {', '.join(sorted(allowed))}"
                )
        return names

    return parse_names


if __name__ == "__main__":
    main()
