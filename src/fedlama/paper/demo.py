"""The main job on the embedded data: FedAvg(τ'), FedAvg(φτ'), FedLAMA(τ', φ) and the preset `frugal`, with the same
clients and steps. It is a study like any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedlama.study.settings import Study
from fedlama.study.study_file import parse_study

BASE_INTERVAL = 6
INCREASE_FACTOR = 4
SEEDS = 4
ITERATIONS = 480
LEARNING_RATE = 0.1  # chosen in a small pilot
SETTINGS: list[dict[str, Any]] = [
    {"policy": {"kind": "fedavg", "base_interval": BASE_INTERVAL}},
    {"policy": {"kind": "fedavg", "base_interval": BASE_INTERVAL * INCREASE_FACTOR}},
    {
        "policy": {
            "kind": "fedlama",
            "base_interval": BASE_INTERVAL,
            "increase_factor": INCREASE_FACTOR,
        }
    },
    {"name": "frugal", "preset": "frugal", "policy": {"base_interval": BASE_INTERVAL}},
]


def demo_study(
    seeds: int = SEEDS,
    iterations: int = ITERATIONS,
    learning_rate: float = LEARNING_RATE,
) -> Study:
    """The four settings; the window is common to all of them, so that they see the same clients.

    Arguments:
        seeds: How many seeds, from 0.
        iterations: How many steps each run takes.
        learning_rate: Of every client's SGD.
    """
    return parse_study(
        {
            "data": {"name": "digits"},
            "partition": {"kind": "dirichlet", "clients": 32, "alpha": 0.5},
            "participation": {"active": 8, "window": BASE_INTERVAL * INCREASE_FACTOR},
            "local": {"learning_rate": learning_rate, "batch_size": 16},
            "train": {"iterations": iterations},
            "output": {"tensorboard": False},
            "study": {
                "seeds": list(range(seeds)),
                "baseline": f"FedAvg({BASE_INTERVAL})",
                "setting": SETTINGS,
            },
        },
        "demo",
    )


def demo_folder(out: Path, iterations: int, learning_rate: float) -> Path:
    """Where the demo's runs are: those of other options are others, and have a folder of their own.

    Arguments:
        out: The folder of the usual options.
        iterations: As the user wants it.
        learning_rate: As the user wants it.
    """
    name = out.name
    if iterations != ITERATIONS:
        name += f"-{iterations}-steps"
    if learning_rate != LEARNING_RATE:
        name += f"-rate-{learning_rate:g}"
    return out.with_name(name)
