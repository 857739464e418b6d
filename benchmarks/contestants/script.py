"""FedAvg as people write it by hand: deepcopy the model, a DataLoader a client, average the state_dicts."""

from __future__ import annotations

import copy
import random

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

from benchmarks.job import Job, Stopwatch


def main() -> None:
    job = Job.from_environment()
    samples, watch = job.samples(), Stopwatch(job)
    data = TensorDataset(samples.inputs(), samples.y)
    shards = [
        Subset(data, samples.shard(client).tolist()) for client in range(job.clients)
    ]
    loaders = [
        DataLoader(shard, batch_size=job.batch, shuffle=True) for shard in shards
    ]
    model = job.build()
    for number in range(1, job.warmup + job.rounds + 1):
        cohort = random.sample(range(job.clients), job.active)
        states = [
            train(copy.deepcopy(model), loaders[client], job) for client in cohort
        ]
        model.load_state_dict(average(states))
        watch.round_ends(number)
    watch.report()


def train(model: nn.Module, loader: DataLoader, job: Job) -> dict[str, Tensor]:
    """One client's steps, through as many epochs as they take."""
    optimizer = torch.optim.SGD(model.parameters(), lr=job.learning_rate)
    model.train()
    step = 0
    while step < job.steps:
        for inputs, targets in loader:
            if step == job.steps:
                break
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            step += 1
    return model.state_dict()


def average(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Every entry's mean over the clients."""
    return {
        key: torch.stack([state[key].float() for state in states])
        .mean(dim=0)
        .to(states[0][key].dtype)
        for key in states[0]
    }


if __name__ == "__main__":
    main()
