"""A small ResNet with BatchNorm on CIFAR-10 at 16×16 pixels: python results/frontier/cifar16.py SEED…

64 clients (Dirichlet 0.3), of which 16 train for windows of 24 steps; 720 steps of batch 32. Each run is written to
results/frontier/cifar16/ as one summary, a run that is there is not repeated, and the table of all of them is printed.
"""

from __future__ import annotations

import json
import math
import sys
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

import fedlama
from fedlama.compress import ErrorFeedback, Rotate
from fedlama.data import Dataset

FOLDER = Path(__file__).parent / "cifar16"
BASELINE = "FedAvg(6)"
SETTINGS: dict[str, dict[str, Any]] = {
    BASELINE: {"policy": fedlama.FedAvg(6)},
    "frugal": fedlama.presets.frugal(),
    "FedLAMA(6, 4)": {"policy": fedlama.FedLAMA(6, 4)},
    "FedAvg(24)": {"policy": fedlama.FedAvg(24)},
    "Rotate(0.32) + window feedback": {
        "policy": fedlama.FedAvg(6),
        "uplink": ErrorFeedback(Rotate(0.32)),
    },
}
KEPT = (
    "accuracy",
    "loss",
    "cost",
    "uplink_bytes",
    "downlink_bytes",
    "statistics_bytes",
    "seconds",
    "uplink_share",
)


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The activated sum of both ways."""
        residual = relu(self.bn1(self.conv1(x)))
        residual = self.bn2(self.conv2(residual))
        return relu(residual + self.shortcut(x))


class Mean(nn.Module):
    """Over all pixels."""

    def forward(self, x: Tensor) -> Tensor:
        """One number per channel."""
        return x.mean(dim=(2, 3))


def small_resnet() -> nn.Module:
    """Three blocks, 8, 16 and 32 channels wide: about 20,000 parameters."""
    return nn.Sequential(
        OrderedDict(
            conv0=nn.Conv2d(3, 8, 3, padding=1, bias=False),
            bn0=nn.BatchNorm2d(8),
            relu0=nn.ReLU(),
            block1=Block(8, 8, stride=1),
            block2=Block(8, 16, stride=2),
            block3=Block(16, 32, stride=2),
            mean=Mean(),
            fc=nn.Linear(32, 10),
        )
    )


def halved(data: Dataset) -> Dataset:
    """The same images with a quarter of the pixels, each the mean of four."""

    def smaller(images: Tensor) -> Tensor:
        parts = [
            avg_pool2d(part.float(), 2).round().to(torch.uint8)
            for part in images.split(5000)
        ]
        return torch.cat(parts)

    return replace(
        data,
        x_train=smaller(data.x_train),
        x_test=smaller(data.x_test),
        name="cifar10 at 16×16",
    )


def run(label: str, seed: int, data: Dataset) -> None:
    """Run one setting with one seed, unless its summary is there."""
    folder = (
        label.lower()
        .replace(" + ", "-")
        .replace(", ", "-")
        .replace("(", "-")
        .replace(")", "")
        .replace(" ", "-")
    )
    path = FOLDER / folder / f"seed{seed}.json"
    if path.exists():
        return
    result = fedlama.simulate(
        small_resnet,
        data,
        **SETTINGS[label],
        local=fedlama.SGD(learning_rate=0.1, batch_size=32),
        partition=fedlama.Dirichlet(clients=64, alpha=0.3),
        participation=16,
        window=24,
        iterations=720,
        evaluate_every=720,
        seed=seed,
    )
    summary: dict[str, Any] = {"setting": label, "seed": seed}
    for name in KEPT:
        summary[name] = getattr(result, name)
    summary["versions"] = {"fedlama": fedlama.__version__, "torch": torch.__version__}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def print_table() -> None:
    """All runs that are finished, as paired differences to the baseline."""
    summaries = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(FOLDER.glob("*/seed*.json"))
    ]
    by_setting: dict[str, dict[int, dict[str, Any]]] = {}
    for summary in summaries:
        by_setting.setdefault(summary["setting"], {})[summary["seed"]] = summary
    baseline = by_setting[BASELINE]
    print("| setting | accuracy | uplink | both ways | difference in points | seeds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for label in SETTINGS:
        runs = by_setting.get(label, {})
        seeds = sorted(set(runs) & set(baseline))
        if not seeds:
            continue
        accuracy = fmean(100 * runs[seed]["accuracy"] for seed in seeds)
        differences = [
            100 * (runs[seed]["accuracy"] - baseline[seed]["accuracy"])
            for seed in seeds
        ]
        spread = (
            f" ± {stdev(differences) / math.sqrt(len(seeds)):.2f}"
            if len(seeds) > 1
            else ""
        )
        up = sum(runs[seed]["uplink_bytes"] for seed in seeds) / sum(
            baseline[seed]["uplink_bytes"] for seed in seeds
        )
        both = sum(
            runs[seed]["uplink_bytes"] + runs[seed]["downlink_bytes"] for seed in seeds
        )
        both /= sum(
            baseline[seed]["uplink_bytes"] + baseline[seed]["downlink_bytes"]
            for seed in seeds
        )
        print(
            f"| {label} | {accuracy:.2f} % | {100 * up:.2f} % | {100 * both:.1f} % "
            f"| {fmean(differences):+.2f}{spread} | {len(seeds)} |"
        )


def main(seeds: list[int]) -> None:
    """Run what is missing, seed by seed, then print the table."""
    data = halved(fedlama.data.load("cifar10"))
    for seed in seeds:
        for label in SETTINGS:
            run(label, seed, data)
    print_table()


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
