"""Two contestants take turns: one runs some cycles while the other is stopped, then they change places.

A shared machine is faster in one minute than in the next, by more than what is compared here. Programs that run one
after the other are minutes apart; turns of half a second are not, and a ratio divides two turns that follow each other.

Driver and contestant talk through two pipes: the contestant says that its turn is over, and waits to be let go on. Its
processes are stopped meanwhile, all of them: a second worker would otherwise begin the next round in the other's time.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import ROOT
from benchmarks.job import CYCLE, ENDLESS, TURN_PIPES, Job
from benchmarks.measure import Contestant, environment_of

TURN_SECONDS = 0.5  # at least: so that filling the caches again does not count
TIMEOUT = 300.0  # seconds for a turn, and for getting ready
LEAST_TURNS = 3  # also where they take long


class TurnError(Exception):
    """A contestant that failed, or took too long."""


@dataclass(frozen=True)
class Player:
    """A running contestant, which is waiting for its turn or having it."""

    name: str
    process: subprocess.Popen[bytes]
    says: int  # pipe from the contestant
    hears: int  # pipe to it
    log: Path

    def wait(self) -> float:
        """Until its turn is over; the seconds that it took, as it measured them itself."""
        deadline = time.monotonic() + TIMEOUT
        said = b""
        while not said.endswith(b"\n"):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.says], [], [], max(left, 0))
            piece = os.read(self.says, 64) if ready else b""
            if not piece:
                raise TurnError(f"{self.name}: {self._last_words()}")
            said += piece
        return float(said)

    def stop(self) -> None:
        """All of its processes."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Its turn begins."""
        os.killpg(self.process.pid, signal.SIGCONT)
        os.write(self.hears, b"\n")

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        spoken = [line for line in lines if line.strip()]
        return spoken[-1][:200] if spoken else "no answer"


def take_turns(
    contestants: Sequence[Contestant], job: Job, turns: int, seconds: float
) -> list[list[float]]:
    """Seconds per round of every turn, for each of the contestants; as many for one as for the others.

    Arguments:
        contestants: Of those that know how to take turns.
        job: What they do; it goes on for as many rounds as the turns take.
        turns: How many each of them has.
        seconds: After so many no turn is begun, if each has had a few.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fedlama-bench-") as folder,
        ExitStack() as stack,
    ):
        players: list[Player] = []
        for number, contestant in enumerate(contestants):
            home = Path(folder) / str(number)
            home.mkdir()
            one = stack.enter_context(_playing(contestant, job, home))
            players.append(one)
            # Ready: its warm-up is over. They warm up one after the other
            one.wait()
            one.stop()
        found: list[list[float]] = [[] for _ in players]
        deadline = time.monotonic() + seconds
        for turn in range(turns):
            if turn >= LEAST_TURNS and time.monotonic() > deadline:
                break
            order = list(range(len(players)))
            # Whoever comes second has the caches of the first: so they change places
            if turn % 2:
                order.reverse()
            for number in order:
                players[number].go_on()
                took = players[number].wait()
                players[number].stop()
                found[number].append(took)
        return found


@contextmanager
def _playing(contestant: Contestant, job: Job, home: Path) -> Iterator[Player]:
    """A contestant while it plays; all of its processes are ended afterwards."""
    says, its_mouth = os.pipe()
    its_ear, hears = os.pipe()
    # Two cycles of warm-up: the second one tells how many make a turn
    adapted = contestant.adapt(job.but(warmup=2 * CYCLE, rounds=ENDLESS))
    log = home / "log"
    pipes = f"{its_mouth},{its_ear},{TURN_SECONDS}"
    environment = {**environment_of(adapted, home), TURN_PIPES: pipes}
    command = [sys.executable, "-m", f"benchmarks.contestants.{contestant.module}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(its_mouth, its_ear),
        )
    os.close(its_mouth)
    os.close(its_ear)
    try:
        yield Player(contestant.name, process, says, hears, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(says)
        os.close(hears)
