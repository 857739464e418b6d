"""fedlama with one process and a clock around its parts: which share of a round is not training.

`own` is what FedLAMA adds to FedAvg: the distances of the due layers and the policy's decisions. `averaging` is the
rest of what happens between two rounds of training: magnitudes, exact sums, writing the mean back.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks.contestants.ours import simulate
from benchmarks.job import Job, Stopwatch
from fedlama.core import Policy
from fedlama.training.loop import Federation

OWN = ((Federation, "_mean_squared_distances"), (Policy, "next"), (Policy, "observe"))
ALL = (Federation, "_aggregate")  # calls the first and the last of OWN


class Clock:
    """Adds up the seconds spent in some methods, once it runs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: type, name: str) -> None:
        """Replace a method by one that is timed."""
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - started

        setattr(owner, name, timed)


class StopwatchWithClock(Stopwatch):
    """Forgets what the clock counted during the warm-up."""

    def __init__(self, job: Job, reset: Callable[[], None]) -> None:
        super().__init__(job)
        self.reset = reset

    def round_ends(self, number: int) -> None:
        super().round_ends(number)
        if number == self.job.warmup:
            self.reset()


def main() -> None:
    job, clock = Job.from_environment(), Clock()
    assert job.processes == 1, "the clock is read in this process"
    for owner, name in (*OWN, ALL):
        clock.watch(owner, name)
    watch = StopwatchWithClock(job, clock.seconds.clear)
    simulate(job, watch)
    spent = {name: seconds / job.rounds for name, seconds in clock.seconds.items()}
    own = sum(spent[name] for _, name in OWN)
    averaging = spent["_aggregate"] - spent["_mean_squared_distances"] - spent["observe"]
    watch.report(own=own, averaging=averaging)


if __name__ == "__main__":
    main()
