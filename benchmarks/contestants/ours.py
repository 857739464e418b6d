"""fedlama: `simulate` with FedLAMA(τ', 4), or with FedAvg(τ'), timed from outside by its records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import fedlama
from benchmarks.job import CYCLE, Job, Samples, Stopwatch
from fedlama.core import Policy
from fedlama.data import Dataset, Shards


@dataclass(frozen=True)
class AsPrepared:
    """A partition that is there already."""

    samples: Samples

    def assign(self, data: Dataset, seed: int) -> Shards:
        return Shards(self.samples.order, self.samples.offsets)


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job)
    policy = fedlama.FedLAMA(job.steps, CYCLE)
    if job.policy == "fedavg":
        policy = fedlama.FedAvg(job.steps)
    simulate(job, watch, policy)
    watch.report()


def simulate(job: Job, watch: Stopwatch, policy: Policy) -> None:
    """The job's rounds; a record may stand for several, because FedLAMA only stops where a layer is due."""
    samples = job.samples()
    uplink = fedlama.compress.Rotate(job.bits) if job.bits else None
    data = fedlama.data.arrays(samples.x, samples.y, samples.x[:1], samples.y[:1])
    data = replace(
        data,
        scale=float(samples.scale),
        mean=_floats(samples.mean),
        std=_floats(samples.std),
    )
    fedlama.simulate(
        job.build,
        data,
        policy=policy,
        local=fedlama.SGD(job.learning_rate, job.batch),
        uplink=uplink,
        partition=AsPrepared(samples),
        participation=job.active,
        iterations=job.steps * (job.warmup + job.rounds),
        seed=job.seed,
        workers=job.processes,
        evaluate_every=job.steps * (job.warmup + job.rounds),
        on_record=lambda record: watch.round_ends(record.step // job.steps),
        precision=job.precision,
    )


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(values.view(-1).tolist())


if __name__ == "__main__":
    main()
