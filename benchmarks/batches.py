"""What a batch costs beside the step it feeds: python -m benchmarks.batches

CIFAR-10 where FEDLAMA_DATA has it, otherwise random pixels; ResNet20, batches of 32, one thread. Steps and batches take
turns, so that a busy machine slows both.
"""

from __future__ import annotations

import time
from statistics import median

import torch
from torch.nn.functional import cross_entropy

import fedlama

REPEATS, BATCH = 30, 32


def images() -> fedlama.data.Dataset:
    try:
        return fedlama.data.load("cifar10")
    except fedlama.InputError:
        x = torch.randint(0, 256, (2000, 3, 32, 32), dtype=torch.uint8)
        data = fedlama.data.arrays(
            x, torch.arange(2000) % 10, x[:10], torch.arange(10), name="random pixels"
        )
        return fedlama.data.Dataset(**{**data.__dict__, "augment": "crop-flip"})


def main() -> None:
    torch.set_num_threads(1)
    data = images()
    batches = fedlama.data.Batches(data, fedlama.IID(2).assign(data, 0), BATCH, seed=0)
    model = fedlama.models.resnet20(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shares, steps = [], []
    for step in range(REPEATS):
        started = time.perf_counter()
        inputs, targets = batches.at(0, step)
        ready = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        steps.append(time.perf_counter() - ready)
        shares.append((ready - started) / steps[-1])
    kept = sorted(shares[3:])
    print(
        f"{data.name}, {data.augment or 'no augmentation'}: a batch of {BATCH} takes {median(kept):.2%} of a step"
    )
    print(
        f"(spread {kept[0]:.2%} to {kept[-1]:.2%} over {len(kept)} steps; torch {torch.__version__}, seed 0)"
    )


if __name__ == "__main__":
    main()
