"""A torch.distributed program under test: torchrun runs it, it writes what each rank saw to a folder."""

import hashlib
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


def count_bytes(log: list[int]) -> None:
    """Wrap the process group's collectives, so that we know what is really handed to it."""
    all_reduce, all_gather = dist.all_reduce, dist.all_gather

    def counting(tensor, *args, **kwargs):
        log.append(tensor.numel() * tensor.element_size())
        return all_reduce(tensor, *args, **kwargs)

    def counting_gather(tensors, tensor, *args, **kwargs):
        log.append(tensor.numel() * tensor.element_size())
        return all_gather(tensors, tensor, *args, **kwargs)

    dist.all_reduce = counting
    dist.all_gather = counting_gather


POLICY = fedlama.FedLAMA(BASE, FACTOR)
OPTIONS = {
    "coded": {"policy": POLICY, "uplink": fedlama.compress.Rotate(1.6), "seed": SEED},
    "budget": {
        # Asks for the bytes of a layer, which differ over ranks
        "policy": fedlama.Budget(BASE, BASE * FACTOR, 0.6),
        "uplink": fedlama.compress.Rotate(1.0),
    },
    "too-large": {"policy": POLICY, "uplink": fedlama.compress.Rotate(1.6)},
    # Asks for norms of the anchor
    "relative": {"policy": fedlama.Budget(BASE, BASE * FACTOR, 0.6, drift="relative")},
    "diloco": {
        "policy": POLICY,
        "server": fedlama.server.Momentum(0.5, nesterov=True),
        "uplink": fedlama.compress.ErrorFeedback(
            fedlama.compress.Rotate(1.0), lifetime="run"
        ),
    },
}


def averager_for(mode: str, model: nn.Module) -> fedlama.LayerwiseModelAverager:
    if mode == "other-interval":
        return fedlama.LayerwiseModelAverager(model, BASE + dist.get_rank(), FACTOR)
    if mode == "other-adaptive":
        kernels = [name for name, one in model.named_parameters() if one.ndim > 1]
        chosen = kernels[dist.get_rank()]
        return fedlama.LayerwiseModelAverager(model, BASE, FACTOR, adaptive=[chosen])
    if mode == "other-seed":
        return fedlama.LayerwiseModelAverager(
            model, **{**OPTIONS["coded"], "seed": dist.get_rank()}
        )
    if mode == "other-module" and dist.get_rank():  # as large, in other layers
        model = fedlama.models.mlp(classes=10, inputs=48, hidden=(64, 16))
    if mode == "other-weights":
        with torch.no_grad():
            next(model.parameters()).add_(dist.get_rank())
        return fedlama.LayerwiseModelAverager(
            model, BASE, FACTOR, uplink=fedlama.compress.Cast("float16")
        )
    options = OPTIONS.get(mode.removesuffix("-restart"))
    if options is None:
        return fedlama.LayerwiseModelAverager(model, BASE, FACTOR)
    return fedlama.LayerwiseModelAverager(model, **options)


def synchronised(
    averager: fedlama.LayerwiseModelAverager, model: nn.Module
) -> dict[str, str]:
    """The layers that were just averaged, and a hash of what this rank's module has there."""
    hashes = {}
    tensors = dict(model.named_parameters())
    for layer, step in zip(
        averager.layout.layers, averager.state.synchronised_at, strict=True
    ):
        if step == averager.state.step:
            content = tensors[layer.name].detach().numpy().tobytes()
            hashes[layer.name] = hashlib.sha256(content).hexdigest()
    return hashes


def train(mode: str, folder: Path) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    data = fedlama.data.digits()
    shards = fedlama.IID(size).assign(data, SEED)
    batches = fedlama.data.Batches(data, shards, BATCH, SEED)
    model = seeded_build(build, SEED)
    handed: list[int] = []
    averager = averager_for(mode, model)
    # From here on: at first the ranks only make sure that they agree
    count_bytes(handed)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    if mode == "post-local":
        # Its import warns of torch's own deprecations
        from torch.distributed.optim import PostLocalSGDOptimizer

        optimizer = PostLocalSGDOptimizer(optim=optimizer, averager=averager)
    intervals, cycle_end_weights, rounds, own = [], [], [], []
    counted_before = 0
    for step in range(STEPS):
        # a new process would do just this, inside a cycle
        if mode == "restart" and step == 20:
            saved = json.loads(json.dumps(averager.state_dict()))
            averager = averager_for(mode, model)
            averager.load_state_dict(saved)
        # with a rule or a codec there are rows in the state
        if mode.endswith("-restart") and step == 20:
            file = folder / f"state{rank}.pt"
            torch.save(averager.state_dict(), file)
            averager = averager_for(mode, model)
            averager.load_state_dict(torch.load(file, weights_only=True))
            handed.clear()
            counted_before = averager.sent_bytes
        inputs, targets = batches.at(rank, step)
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        # Finite, and no message can hold it: on one rank, right before the first average
        if mode == "too-large" and rank == 1 and step == BASE - 1:
            with torch.no_grad():
                next(model.parameters()).fill_(3e38)
        if mode != "post-local":
            averager.average_parameters(model.parameters())
        if averager.state.round > len(rounds):
            rounds.append(synchronised(averager, model))
            own.append(averager.state.own)
        if (step + 1) % (BASE * FACTOR) == 0:
            intervals.append(list(averager.state.intervals))
            cycle_end_weights.append(
                torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()
            )
    seen = {
        "intervals": intervals,
        "cycle_end_weights": cycle_end_weights,
        "rounds": rounds,
        "own": own,
        "aggregations": list(averager.ledger.aggregations),
        "discrepancy": list(averager.state.discrepancy),
        "sent_bytes": averager.sent_bytes - counted_before,
        "ledger_bytes": averager.ledger.uplink_bytes,
        "handed_bytes": sum(handed),
        "collectives": len(handed),
        "step": averager.step,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(seen))


def main(modes: str, folder: Path) -> None:
    """One mode writes to the folder itself; several, as in "coded,budget", to a folder each."""
    dist.init_process_group("gloo")
    names = modes.split(",")
    for mode in names:
        place = folder
        if len(names) > 1:
            place = folder / mode
        place.mkdir(exist_ok=True)
        train(mode, place)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
