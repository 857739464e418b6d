"""What coding adds to training, in processor time: python -m benchmarks.coding

Jobs A and B with `Rotate` on the uplink, in one process with one thread. The time of the processor is counted, not
that of the clock, and every round's coding stands beside the training of the same round: a busy machine slows both.
With FedLAMA(τ′, 4) only the layers that are due are coded, with FedAvg(τ′) all of them in every round.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import torch

import fedlama
from benchmarks.contestants.ours import simulate
from benchmarks.job import CYCLE, Job, Stopwatch
from benchmarks.jobs import JOBS, prepare
from fedlama.core import Policy

BITS = 1.6


class ProcessorSeconds(logging.Handler):
    """Adds up the time of the processor by the part of a round that ended with it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)
        self._before = time.process_time()

    def emit(self, record: logging.LogRecord) -> None:
        now = time.process_time()
        phase = record.phase  # pyright: ignore[reportAttributeAccessIssue]
        self.seconds[phase] += now - self._before
        self._before = now


class CycleShares(Stopwatch):
    """Notes at every cycle's end which share of its training the coding took."""

    def __init__(self, job: Job, processor: ProcessorSeconds) -> None:
        super().__init__(job)
        self.processor = processor
        self.shares: list[float] = []
        self.coding: list[float] = []  # seconds per client and round

    def round_ends(self, number: int) -> None:
        super().round_ends(number)
        if number % CYCLE:
            return
        seconds = self.processor.seconds
        if number > self.job.warmup:
            self.shares.append(seconds["encode"] / seconds["train"])
            self.coding.append(seconds["encode"] / CYCLE / self.job.active)
        seconds.clear()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    processor = ProcessorSeconds()
    logger = logging.getLogger("fedlama.phases")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(processor)
    logger.propagate = False
    with tempfile.TemporaryDirectory(prefix="fedlama-bench-data-") as folder:
        for name in options.jobs:
            job, source = prepare(JOBS[name], Path(folder))
            job = job.but(
                processes=1,
                bits=options.bits,
                warmup=CYCLE,
                rounds=CYCLE * options.cycles,
            )
            for policy in (
                fedlama.FedLAMA(job.steps, CYCLE),
                fedlama.FedAvg(job.steps),
            ):
                measure(job, source, policy, processor)


def measure(job: Job, source: str, policy: Policy, processor: ProcessorSeconds) -> None:
    """Run the job and print a line."""
    watch = CycleShares(job, processor)
    simulate(job, watch, policy)
    shares = sorted(watch.shares)
    print(
        f"{job.name} ({source}, {job.model}), {policy}: Rotate({job.bits:g}) takes {median(shares):.1%} of training's "
        f"processor time ({shares[0]:.1%} to {shares[-1]:.1%} over {len(shares)} cycles), "
        f"{1000 * median(watch.coding):.1f} ms per client and round; torch {torch.__version__}, seed {job.seed}",
        flush=True,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coding", description=__doc__
    )
    parser.add_argument(
        "--jobs", type=lambda text: text.split(","), default=["A", "B"], help="of A, B"
    )
    parser.add_argument("--bits", type=float, default=BITS, help="of Rotate")
    parser.add_argument(
        "--cycles",
        type=int,
        default=2,
        help="of four rounds each, after one to warm up",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
