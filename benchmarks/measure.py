"""Run one contestant in processes of its own: its seconds a round, or its peak memory.

Every process of a contestant carries a token in its environment. That finds them all, also those that a launcher
starts in sessions of their own (Ray does): to add up their memory, and to end what is left of them.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environments import ROOT, python_for
from benchmarks.job import CYCLE, Job

TIMEOUT = 600.0  # seconds for one run
MEMORY_INTERVAL = 0.1
WATCH_INTERVAL = 0.02
TOKEN = "FEDLAMA_BENCHMARK_TOKEN"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True)
class Contestant:
    """A program, the environment it runs in, and what it changes about a job."""

    name: str
    module: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    environment: str | None = None
    torchrun: bool = False
    jobs: str = "ABC"
    most_rounds: int = 10_000
    memory: bool = True  # whether that is worth a run of its own
    # Whether it knows how to take turns with others, and whether it is also timed alone
    takes_turns: bool = False
    runs_alone: bool = True

    def adapt(self, job: Job) -> Job:
        """The job as this contestant gets it: FedLAMA warms up for whole cycles, to be timed over whole ones."""
        warmup = min(job.warmup, self.most_rounds)
        rounds = min(job.rounds, self.most_rounds)
        job = job.but(warmup=warmup, rounds=rounds, **self.changes)
        is_ours = self.module in ("ours", "bookkeeping")
        if is_ours and job.policy == "fedlama":
            cycles = -(-job.warmup // CYCLE)
            job = job.but(warmup=cycles * CYCLE)
        return job


CONTESTANTS = {
    "bare": Contestant("bare loop", "bare", jobs="ABCD", takes_turns=True),
    "bare-by-hand": Contestant(
        "bare loop, updates by hand",
        "bare",
        {"update": "by hand"},
        jobs="C",
        memory=False,
        takes_turns=True,
        runs_alone=False,
    ),
    "fedlama": Contestant(
        "fedlama, FedLAMA(τ′, 4)", "ours", jobs="ABCD", takes_turns=True
    ),
    "fedlama-fedavg": Contestant(
        "fedlama, FedAvg(τ′)",
        "ours",
        {"policy": "fedavg"},
        memory=False,
        takes_turns=True,
        runs_alone=False,
    ),
    "fedlama-bf16": Contestant(
        "fedlama, bfloat16",
        "ours",
        {"precision": "bfloat16"},
        jobs="AB",
        memory=False,
        takes_turns=True,
        runs_alone=False,
    ),
    "fedlama-rotate": Contestant(
        "fedlama, Rotate(1.6)",
        "ours",
        {"bits": 1.6},
        jobs="AB",
        memory=False,
        takes_turns=True,
        runs_alone=False,
    ),
    "fedlama-1": Contestant(
        "fedlama, 1 worker", "bookkeeping", {"processes": 1}, jobs="AB", memory=False
    ),
    "pfl": Contestant("pfl-research", "pfl_research", environment="pfl", torchrun=True),
    "flower": Contestant(
        "Flower simulation", "flower", environment="flower", most_rounds=20
    ),
    "script": Contestant("hand-written script", "script"),
}


@dataclass(frozen=True)
class Outcome:
    """What a run said, or why it failed."""

    seconds: float | None = None  # a round
    memory: int | None = None  # bytes at the peak, shared pages counted once
    failure: str | None = None
    answer: dict[str, Any] | None = None


def run(contestant: Contestant, job: Job, *, memory: bool = False) -> Outcome:
    """One run. Adding up memory takes time, so a run that does it is not timed."""
    try:
        python = python_for(contestant.environment)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        return Outcome(failure=f"no environment: {error}")
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={job.processes}",
    ]
    command = [
        str(python),
        *(launcher if contestant.torchrun else []),
        "-m",
        f"benchmarks.contestants.{contestant.module}",
    ]
    with tempfile.TemporaryDirectory(prefix="fedlama-bench-") as folder:
        peak, failure = _supervise(command, contestant.adapt(job), Path(folder), memory)
        if failure:
            return Outcome(failure=failure)
        answer = json.loads((Path(folder) / "answer").read_text(encoding="utf-8"))
    return Outcome(None if memory else answer["seconds"], peak or None, None, answer)


def environment_of(job: Job, folder: Path) -> dict[str, str]:
    """What a contestant's processes are given: their job, and a folder of their own."""
    return {
        **os.environ,
        **QUIET,
        **job.to_environment(),
        "FEDLAMA_BENCHMARK_ANSWER": str(folder / "answer"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "TMPDIR": str(folder),
    }


def _supervise(
    command: list[str], job: Job, folder: Path, memory: bool
) -> tuple[int, str | None]:
    """Start the program and see it end; its peak memory and, if it went wrong, the reason."""
    token, log = secrets.token_hex(16), folder / "log"
    environment = {**environment_of(job, folder), TOKEN: token}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        peak = _watch(process, (lambda: _memory(token)) if memory else None)
        failure = f"took more than {TIMEOUT:.0f} s" if process.poll() is None else None
    finally:
        _end(process, token)
    if failure is None and not (folder / "answer").is_file():
        failure = _reason(log, process.returncode)
    return peak, failure


def _watch(process: subprocess.Popen[bytes], sample: Callable[[], int] | None) -> int:
    """Wait for the end, or for the time to be up; the largest sample."""
    peak, deadline = 0, time.monotonic() + TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        if sample:
            peak = max(peak, sample())
        time.sleep(MEMORY_INTERVAL if sample else WATCH_INTERVAL)
    return peak


def _end(process: subprocess.Popen[bytes], token: str) -> None:
    """End every process with this token; nobody else's."""
    for number in with_token(token):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait()


def _memory(token: str) -> int:
    """Bytes of all processes with this token: a page that n of them share counts 1/n in each (PSS)."""
    total = 0
    for number in with_token(token):
        with suppress(OSError):
            lines = (
                Path(f"/proc/{number}/smaps_rollup")
                .read_text(encoding="ascii")
                .splitlines()
            )
            total += sum(
                int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")
            )
    return total


def with_token(token: str) -> Iterator[int]:
    """The processes that carry this token."""
    wanted = f"{TOKEN}={token}".encode()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and wanted in (
                folder / "environ"
            ).read_bytes().split(b"\0"):
                yield int(folder.name)


def _reason(log: Path, code: int | None) -> str:
    """The last line of a program that failed."""
    lines = [
        line.strip()
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    errors = [line for line in lines if "Error" in line and not line.startswith("File")]
    return f"exit {code}: {(errors or lines or ['no message'])[-1][:200]}"
