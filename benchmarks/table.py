"""What the runs say: one table, the targets beside what was measured, and the same as Markdown and JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import fedlama
from benchmarks.environments import REQUIREMENTS
from benchmarks.job import Job
from benchmarks.measure import CONTESTANTS, Outcome

HEADINGS = (
    "job",
    "contestant",
    "a round",
    "× bare loop (spread)",
    "timed",
    "peak memory",
)
CORES = 2
TARGETS = ("target", "wanted", "measured", "met")
LIMITS = {"A": 1.03, "B": 1.03, "C": 0.75}  # × the bare loop
LIMIT_OF_D = 1.05  # at every point
OTHERS = ("pfl", "flower", "script")

Check = tuple[str, str, str, str]  # under TARGETS


@dataclass
class Entry:
    """All runs of one contestant on one job: `seconds` is by repetition, `turns` are those taken with others."""

    job: Job
    contestant: str
    seconds: dict[int, float] = field(default_factory=dict)
    turns: list[float] = field(default_factory=list)
    memory: int | None = None
    failure: str | None = None
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The job's letter, or in D which value grew."""
        return self.job.title if self.job.name == "D" else self.job.name

    @property
    def timed(self) -> list[float]:
        """Seconds per round, of every turn or else of every run."""
        return self.turns or list(self.seconds.values())

    def take(self, outcome: Outcome, repetition: int) -> None:
        """Note what a run said."""
        self.failure = self.failure or outcome.failure
        self.memory = outcome.memory or self.memory
        if outcome.seconds is not None:
            self.seconds[repetition] = outcome.seconds
            self.answer = outcome.answer or {}


@dataclass
class Results:
    """Every entry, and where and on what they were measured."""

    entries: list[Entry]
    about: dict[str, Any]
    checked: bool = True  # the targets are for the jobs as they are, not for tiny ones

    def entry(self, job: str, contestant: str) -> Entry | None:
        """An entry that has been timed, by its label."""
        for entry in self.entries:
            if entry.label == job and entry.contestant == contestant and entry.timed:
                return entry
        return None

    def ratios(self, job: str, contestant: str, to: str = "bare") -> list[float]:
        """Seconds against those of another contestant in the same turn, or in the same repetition."""
        one = self.entry(job, contestant)
        other = self.entry(job, to)
        if one is None or other is None:
            return []
        if one.turns and other.turns:
            both = zip(one.turns, other.turns, strict=True)
            return [own / others for own, others in both]
        result: list[float] = []
        for repetition in sorted(one.seconds.keys() & other.seconds.keys()):
            result.append(one.seconds[repetition] / other.seconds[repetition])
        return result

    def rows(self) -> list[tuple[str, ...]]:
        """The table's cells."""
        return [self._row(entry) for entry in self.entries]

    def _row(self, entry: Entry) -> tuple[str, ...]:
        return (
            entry.label,
            CONTESTANTS[entry.contestant].name,
            duration(median(entry.timed)) if entry.timed else "–",
            spread(self.ratios(entry.label, entry.contestant)),
            _count(entry),
            f"{entry.memory / 1e9:.2f} GB" if entry.memory else "–",
        )

    def checks(self) -> list[Check]:
        """Every target that can be checked with what was run."""
        if not self.checked:
            return []
        checks: list[Check] = []
        for job, limit in LIMITS.items():
            checks += self._against_the_bare_loop(job, limit)
        for label in self._labels_of_d():
            checks += self._against_the_bare_loop(label, LIMIT_OF_D)
        for job in LIMITS:
            for other in OTHERS:
                checks += self._ahead(job, other)
        checks += self._noted(
            "C: × bare loop, updates by hand",
            self.ratios("C", "fedlama", to="bare-by-hand"),
        )
        checks += self._speedup()
        for job in "AB":
            checks += self._bookkeeping(job)
        for job in "AB":
            checks += self._coding(job)
        checks += self._flat()
        checks += self._memory()
        for job in "AB":
            checks += self._noted(
                f"{job}: float32 × bfloat16",
                self.ratios(job, "fedlama", to="fedlama-bf16"),
            )
        return checks

    def _against_the_bare_loop(self, job: str, limit: float) -> Iterator[Check]:
        if ratios := self.ratios(job, "fedlama"):
            yield (
                f"{job}: × bare loop",
                f"≤ {limit}",
                spread(ratios),
                met(median(ratios) <= limit),
            )

    def _labels_of_d(self) -> list[str]:
        """Each point of job D, once."""
        return list(
            dict.fromkeys(
                entry.label for entry in self.entries if entry.job.name == "D"
            )
        )

    def _ahead(self, job: str, other: str) -> Iterator[Check]:
        if ratios := self.ratios(job, other, to="fedlama"):
            name = CONTESTANTS[other].name
            yield (
                f"{job}: {name} × fedlama",
                "> 1",
                spread(ratios),
                met(median(ratios) > 1),
            )

    def _speedup(self) -> Iterator[Check]:
        if ratios := self.ratios("A", "fedlama-1", to="fedlama"):
            yield (
                "A: 2 workers against 1",
                "≥ 1.8×",
                spread(ratios),
                met(median(ratios) >= 1.8),
            )

    def _bookkeeping(self, job: str) -> Iterator[Check]:
        if entry := self.entry(job, "fedlama-1"):
            seconds = entry.answer["seconds"]
            own = entry.answer["own"] / seconds
            averaging = entry.answer["averaging"] / seconds
            measured = f"{own:.2%} (averaging itself {averaging:.2%})"
            yield (
                f"{job}: distances and decisions",
                "≤ 1 % of a round",
                measured,
                met(own <= 0.01),
            )

    def _coding(self, job: str) -> Iterator[Check]:
        if ratios := self.ratios(job, "fedlama-rotate", to="fedlama"):
            yield (
                f"{job}: with Rotate(1.6) × without",
                "≤ 1.05",
                spread(ratios),
                met(median(ratios) <= 1.05),
            )

    def _flat(self) -> Iterator[Check]:
        entries: list[Entry] = []
        for entry in self.entries:
            if entry.contestant == "fedlama" and entry.job.title.startswith(
                "population"
            ):
                entries.append(entry)
        if len(entries) < 2 or not all(entry.timed for entry in entries):
            return
        first = entries[0]
        last = entries[-1]
        what = f"{last.job.title} against {first.job.clients:,}"
        slower = median(last.timed) / median(first.timed)
        yield f"{what}: a round", "≤ 1.1×", f"{slower:.2f}×", met(slower <= 1.1)
        if first.memory and last.memory:
            each = (last.memory - first.memory) / (last.job.clients - first.job.clients)
            yield (
                f"{what}: memory",
                "≤ 64 bytes a client more",
                f"{each:.0f}",
                met(each <= 64),
            )

    def _memory(self) -> Iterator[Check]:
        if (entry := self.entry("A", "fedlama")) and entry.memory:
            yield (
                "A: peak memory",
                "< 1.5 GB",
                f"{entry.memory / 1e9:.2f} GB",
                met(entry.memory < 1.5e9),
            )

    def _noted(self, what: str, ratios: list[float]) -> Iterator[Check]:
        if ratios:
            yield what, "no target", spread(ratios), "–"

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        runs = [
            {
                "job": vars(entry.job) | {"data": Path(entry.job.data).name},
                "contestant": entry.contestant,
                "seconds": list(entry.seconds.values()),
                "turns": entry.turns,
                "memory": entry.memory,
                "failure": entry.failure,
                "answer": entry.answer,
            }
            for entry in self.entries
        ]
        return {"about": self.about, "runs": runs, "checks": self.checks()}

    def as_markdown(self) -> str:
        """The same table, for a page."""
        about = "\n".join(f"* {key}: {value}" for key, value in self.about.items())
        parts = [about, _markdown(HEADINGS, self.rows())]
        if checks := self.checks():
            parts.append(_markdown(TARGETS, checks))
        return "\n\n".join(parts) + "\n"

    def show(self, console: Console) -> None:
        """The table on the terminal."""
        console.print(
            *(f"{key}: {value}" for key, value in self.about.items()),
            sep="\n",
            markup=False,
        )
        table = Table(*HEADINGS)
        for _, rows in groupby(self.rows(), key=itemgetter(0)):
            for row in rows:
                table.add_row(*map(escape, row))
            table.add_section()
        console.print(table)
        if checks := self.checks():
            table = Table(*TARGETS)
            for check in checks:
                table.add_row(*check)
            console.print(table)


def hardware() -> dict[str, Any]:
    """Where this runs."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(
        (
            line.partition(":")[2].strip()
            for line in lines
            if line.startswith("model name")
        ),
        "unknown",
    )
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    bfloat16 = (
        ", ".join(flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags)
        or "none"
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": f"{model}, {CORES} of {os.cpu_count()} cores used, {torch.backends.cpu.get_cpu_capability()}",
        "bfloat16 instructions": bfloat16,
        "memory": f"{memory / 1e9:.0f} GB",
        "versions": ", ".join(
            [
                f"fedlama {fedlama.__version__}",
                f"torch {torch.__version__}",
                f"Python {platform.python_version()}",
                *REQUIREMENTS.values(),
            ]
        ),
        "load at the start": f"{os.getloadavg()[0]:.1f} (a quiet machine has less than 0.5)",
    }


def _count(entry: Entry) -> str:
    """How often it was timed, and why it failed if it did."""
    said: list[str] = []
    if entry.turns:
        said.append(f"{len(entry.turns)} turns")
    if entry.seconds or not entry.turns:
        said.append(f"{len(entry.seconds)} runs")
    if entry.failure:
        said.append(f"failed: {entry.failure}")
    return ", ".join(said)


def duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def spread(ratios: list[float]) -> str:
    """The median and, if there are several, the smallest and the largest."""
    if not ratios:
        return "–"
    middle = f"{median(ratios):.3f}"
    return (
        middle
        if len(ratios) == 1
        else f"{middle} ({min(ratios):.3f}–{max(ratios):.3f})"
    )


def met(reached: bool) -> str:
    return "yes" if reached else "no"


def _markdown(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines
    )
