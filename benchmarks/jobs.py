"""Jobs A, B and C, the sweeps of job D, and the data they are run on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.job import CYCLE, Job
from fedlama import data as fedlama_data
from fedlama.base import InputError
from fedlama.data import IID, Dataset, Natural

JOBS = {
    "A": Job(
        "A",
        "CIFAR-10, ResNet20",
        "resnet20",
        clients=128,
        active=8,
        steps=6,
        batch=32,
        rounds=4,
    ),
    "B": Job(
        "B",
        "28×28 by writer, LEAF CNN",
        "leaf_cnn",
        clients=128,
        active=8,
        steps=10,
        batch=32,
        rounds=4,
    ),
    "C": Job(
        "C",
        "digits, MLP",
        "64-128-128-10",
        clients=64,
        active=16,
        steps=6,
        batch=16,
        rounds=300,
        warmup=20,
    ),
}
WANTED = {
    "A": ("cifar10",),
    "B": ("unipen62_by_writer", "mnist_by_writer"),
    "C": ("digits",),
}
# What random data stands in for
SHAPES = {"A": (50_000, (3, 32, 32), 10), "B": (104_796, (1, 28, 28), 62)}

POPULATIONS = tuple(10**power for power in range(2, 7))
# Parameters (about) → the width of both hidden layers
WIDTHS = {
    "10⁵": 280,
    "3·10⁵": 511,
    "10⁶": 963,
    "2·10⁶": 1378,
    "10⁷": 3124,
    "4·10⁷": 6287,
}
# Parameters → clients that train at a time, as far as their rows take less than 1.5 GB
COHORTS = {
    "10⁵": (8, 32, 128),
    "3·10⁵": (8, 128),
    "10⁶": (8, 32, 128),
    "2·10⁶": (8, 128),
    "10⁷": (8, 32),
    "4·10⁷": (8,),
}
# Numbers in the rows of all timed rounds together: so that a run takes a second or two
ENOUGH = 1 << 27
LEAST_CYCLES = 3  # of which the median is taken

QUICK_POPULATIONS, QUICK_COHORTS = (10**2, 10**6), {"10⁵": (8, 32), "2·10⁶": (8,)}


def growing(quick: bool) -> list[Job]:
    """Job D: the population, the cohort or the model grows, and the rest stays."""
    populations = POPULATIONS
    cohorts = COHORTS
    if quick:
        populations = QUICK_POPULATIONS
        cohorts = QUICK_COHORTS
    many = Job("D", "", "64-128-128-10", 100, 16, 6, 2, rounds=40, warmup=CYCLE)
    jobs = [
        many.but(title=f"population {count:,}", clients=count) for count in populations
    ]
    for parameters, counts in cohorts.items():
        width = WIDTHS[parameters]
        for count in counts:
            cycles = max(LEAST_CYCLES, ENOUGH // (CYCLE * count * width * width))
            jobs.append(
                Job(
                    "D",
                    f"cohort {count}, {parameters} parameters",
                    f"64-{width}-{width}-10",
                    clients=1000,
                    active=count,
                    steps=6,
                    batch=16,
                    rounds=CYCLE if quick else CYCLE * cycles,
                    warmup=CYCLE,
                )
            )
    return jobs


def prepare(job: Job, folder: Path) -> tuple[Job, str]:
    """Write the job's data where every contestant finds it; the job with its path, and what the data is."""
    data, shards = _pooled(job) if job.name == "D" else _dealt(job)
    path = folder / f"{job.name}-{job.clients}.npz"
    sizes = np.array([len(own) for own in shards])
    np.savez(
        path,
        x=data.x_train.numpy(),
        y=data.y_train.numpy(),
        order=np.concatenate(shards),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        scale=np.float64(data.scale),
        mean=np.array(data.mean),
        std=np.array(data.std),
    )
    return job.but(data=str(path)), data.name


def _dealt(job: Job) -> tuple[Dataset, list[np.ndarray]]:
    """Every client's samples, repeated to fill whole batches: so a step is the same work for every contestant."""
    data = _first_there(job)
    partition = Natural(job.clients)
    if data.clients is None:
        partition = IID(job.clients)
    shards = partition.assign(data, job.seed)

    filled: list[np.ndarray] = []
    for client in range(job.clients):
        own = shards.of(client).numpy()
        batches = -(-len(own) // job.batch)
        filled.append(np.resize(own, batches * job.batch))
    return data, filled


def _first_there(job: Job) -> Dataset:
    for name in WANTED[job.name]:
        try:
            return fedlama_data.load(name)
        except InputError:
            continue
    samples, shape, classes = SHAPES[job.name]
    return _random(
        samples, shape, classes, f"random numbers in place of {WANTED[job.name][0]}"
    )


def _pooled(job: Job) -> tuple[Dataset, np.ndarray]:
    """A fixed pool of samples; every client has one batch of them, so that only the population's index grows."""
    pool = _random(1 << 14, (1, 8, 8), 10, "random numbers")
    numbers = np.arange(job.batch * job.clients)
    samples = numbers % len(pool.x_train)
    return pool, samples.reshape(job.clients, job.batch)


def _random(samples: int, shape: tuple[int, ...], classes: int, name: str) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=generator)
    y = torch.randint(0, classes, (samples,), generator=generator)
    return Dataset(x, y, x[:1], y[:1], name=name, classes=classes)
