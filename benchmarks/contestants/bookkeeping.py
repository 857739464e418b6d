"""fedlama with one process and its own log of phases: which share of a round is not training.

`own` is what FedLAMA adds to FedAvg: the distances of the due layers and the policy's decisions. `averaging` is the
rest of what happens when a round is closed: exact sums, writing the mean back. The logger `fedlama.phases` tells how
long a round's parts took; the policy is one that notes how long it thinks.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence

import fedlama
from benchmarks.contestants.ours import simulate
from benchmarks.job import CYCLE, Job, Stopwatch
from fedlama.core import Evidence, Layer, PolicyState, RoundPlan

# By part of a round, since the warm-up ended
SECONDS: dict[str, float] = defaultdict(float)


class TimedFedLAMA(fedlama.FedLAMA):
    """The same decisions, and how long they took."""

    def next(self, state: PolicyState, iterations: int) -> RoundPlan:
        started = time.perf_counter()
        plan = super().next(state, iterations)
        SECONDS["next"] += time.perf_counter() - started
        return plan

    def observe(
        self,
        state: PolicyState,
        plan: RoundPlan,
        evidence: Evidence,
        layers: Sequence[Layer],
    ) -> PolicyState:
        started = time.perf_counter()
        after = super().observe(state, plan, evidence, layers)
        SECONDS["observe"] += time.perf_counter() - started
        return after


class PhaseSeconds(logging.Handler):
    """Adds up what the log of phases tells."""

    def emit(self, record: logging.LogRecord) -> None:
        SECONDS[record.phase] += record.seconds  # pyright: ignore[reportAttributeAccessIssue]


class StopwatchWithPhases(Stopwatch):
    """Forgets what was added up during the warm-up."""

    def round_ends(self, number: int) -> None:
        super().round_ends(number)
        if number == self.job.warmup:
            SECONDS.clear()


def main() -> None:
    job = Job.from_environment()
    assert job.processes == 1, "the phases are those of this process"
    logger = logging.getLogger("fedlama.phases")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(PhaseSeconds())
    logger.propagate = False
    watch = StopwatchWithPhases(job)
    simulate(job, watch, TimedFedLAMA(job.steps, CYCLE))
    own = SECONDS["spread"] + SECONDS["next"] + SECONDS["observe"]
    averaging = SECONDS["aggregate"] - SECONDS["spread"] - SECONDS["observe"]
    watch.report(own=own / job.rounds, averaging=averaging / job.rounds)


if __name__ == "__main__":
    main()
