"""The main job on the embedded data: FedAvg(τ'), FedAvg(φτ'), FedLAMA(τ', φ) and the preset `frugal`, with the same
clients and steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedlama.run.config import Config, parse_config
from fedlama.run.execute import execute
from fedlama.run.files import write_atomically
from fedlama.run.progress import ProgressDisplay
from fedlama.study.index import INDEX, StudyIndex

BASE_INTERVAL = 6
INCREASE_FACTOR = 4
SETTINGS: dict[str, dict[str, Any]] = {
    "fedavg-short": {"policy": {"kind": "fedavg", "base_interval": BASE_INTERVAL}},
    "fedavg-long": {"policy": {"kind": "fedavg", "base_interval": BASE_INTERVAL * INCREASE_FACTOR}},
    "fedlama": {"policy": {"kind": "fedlama", "base_interval": BASE_INTERVAL, "increase_factor": INCREASE_FACTOR}},
    "frugal": {"preset": "frugal", "policy": {"base_interval": BASE_INTERVAL}},
}
SEEDS = 4
LEARNING_RATE = 0.1  # chosen in a small pilot


def demo_config(setting: str, seed: int, iterations: int = 480, learning_rate: float = LEARNING_RATE) -> Config:
    """One cell of the demo; the window is common to all settings, so that they see the same clients."""
    return parse_config(
        {
            "seed": seed,
            "data": {"name": "digits"},
            "partition": {"kind": "dirichlet", "clients": 32, "alpha": 0.5},
            "participation": {"active": 8, "window": BASE_INTERVAL * INCREASE_FACTOR},
            **SETTINGS[setting],
            "local": {"learning_rate": learning_rate, "batch_size": 16},
            "train": {"iterations": iterations},
            "output": {"tensorboard": False},
        }
    )


def run_demo(
    out: Path, seeds: int, iterations: int, learning_rate: float, workers: int | None, display: ProgressDisplay
) -> list[Path]:
    """Run every setting with every seed.

    Arguments:
        out: where the run directories go.
        seeds: how many seeds, from 0.
        iterations: how many steps each run takes.
        learning_rate: of every client's SGD.
        workers: how many processes share a run (default: one per GPU, or one per core).
        display: shows the progress.

    Returns:
        The run directories.
    """
    _write_labels(out, seeds)
    paths: list[Path] = []
    for setting in SETTINGS:
        for seed in range(seeds):
            config = demo_config(setting, seed, iterations, learning_rate)
            path = out / setting / f"seed{seed}"
            display.begin(f"{setting} seed {seed}", config.policy.steps_between_averages, BASE_INTERVAL)
            execute(config, path, [display], workers=workers, replace=True)
            paths.append(path)
    return paths


def _write_labels(out: Path, seeds: int) -> None:
    """What reports call the settings: by their policies, but for the preset."""
    labels: dict[str, str] = {}
    for setting, tables in SETTINGS.items():
        label = setting
        if "preset" not in tables:
            label = str(demo_config(setting, seed=0).policy.build())
        for seed in range(seeds):
            labels[f"{setting}/seed{seed}"] = label
    index = StudyIndex(baseline=f"FedAvg({BASE_INTERVAL})", labels=labels, choices={}, diverged={})
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / INDEX, index.model_dump_json(indent=2) + "\n")
