"""A torch.distributed program under test: torchrun runs it, it writes what each rank saw to a folder."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

import fedlama
from fedlama.training.modules import build as seeded_build

STEPS, BATCH, SEED, BASE, FACTOR, RATE = 60, 16, 5, 3, 4, 0.1


def build() -> nn.Module:
    return fedlama.models.mlp(classes=10, inputs=64, hidden=(48, 16))


def count_bytes(log: list[int]):
    """Wrap the process group's all-reduce, so that we know what is really handed to it."""
    real = dist.all_reduce

    def counting(tensor, *args, **kwargs):
        log.append(tensor.numel() * tensor.element_size())
        return real(tensor, *args, **kwargs)

    return counting


def main(mode: str, folder: Path) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    data = fedlama.data.digits()
    shards = fedlama.IID(size).assign(data, SEED)
    batches = fedlama.data.Batches(data, shards, BATCH, SEED)
    model = seeded_build(build, SEED)
    handed: list[int] = []
    dist.all_reduce = count_bytes(handed)
    averager = fedlama.LayerwiseModelAverager(model, BASE, FACTOR)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    if mode == "post-local":
        from torch.distributed.optim import PostLocalSGDOptimizer  # its import warns of torch's own deprecations

        optimizer = PostLocalSGDOptimizer(optim=optimizer, averager=averager)
    intervals, cycle_end_weights = [], []
    for step in range(STEPS):
        if mode == "restart" and step == 20:  # a new process would do just this, inside a cycle
            saved = json.loads(json.dumps(averager.state_dict()))
            averager = fedlama.LayerwiseModelAverager(model, BASE, FACTOR)
            averager.load_state_dict(saved)
        inputs, targets = batches.at(rank, step)
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if mode != "post-local":
            averager.average_parameters(model.parameters())
        if (step + 1) % (BASE * FACTOR) == 0:
            intervals.append(list(averager.state.intervals))
            cycle_end_weights.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist())
    seen = {
        "intervals": intervals,
        "cycle_end_weights": cycle_end_weights,
        "aggregations": list(averager.ledger.aggregations),
        "discrepancy": list(averager.state.discrepancy),
        "sent_bytes": averager.sent_bytes,
        "handed_bytes": sum(handed),
        "collectives": len(handed),
        "step": averager.step,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
