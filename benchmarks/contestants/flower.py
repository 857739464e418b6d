"""Flower's simulation runtime: FedAvg over message-based apps, one Ray actor × one thread a core.

Tuned as a good user would: an actor keeps the data and one model and only loads what a message carries, a client's
samples are gathered once a round instead of one by one through a DataLoader, evaluation is off, the server asks for
replies every 10 ms instead of every 100 (`pull_interval`), and logs are quiet.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.job import Job, Samples, Stopwatch

client_app, server_app = ClientApp(), ServerApp()


@cache
def kept() -> tuple[Job, Samples, nn.Module]:
    """What an actor keeps between messages."""
    torch.set_num_threads(1)
    job = Job.from_environment()
    return job, job.samples(), job.build()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One client's steps from the global model."""
    job, samples, model = kept()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    indices = samples.draw(
        int(context.node_config["partition-id"]), job.steps * job.batch
    )
    inputs, targets = samples.inputs(indices), samples.y[indices]
    optimizer = torch.optim.SGD(model.parameters(), job.learning_rate)
    for x, y in zip(inputs.split(job.batch), targets.split(job.batch), strict=True):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(indices)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """All rounds, then the answer."""
    job = Job.from_environment()
    watch = Stopwatch(job)
    grid.pull_interval = 0.01  # type: ignore[attr-defined] - the in-memory grid's own setting
    strategy = FedAvg(
        fraction_train=job.active / job.clients,
        fraction_evaluate=0.0,
        min_train_nodes=job.active,
        min_available_nodes=job.clients,
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(job.build().state_dict()),
        num_rounds=job.warmup + job.rounds,
        evaluate_fn=lambda number, arrays: watch.round_ends(number),
    )
    if len(result.train_metrics_clientapp) != job.warmup + job.rounds:
        raise RuntimeError("a round had no replies")
    watch.report()


def main() -> None:
    job = Job.from_environment()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": job.processes},
    }
    run_simulation(
        server_app, client_app, num_supernodes=job.clients, backend_config=backend
    )


if __name__ == "__main__":
    # By its name: so actors import it instead of unpickling it
    import_module("benchmarks.contestants.flower").main()
