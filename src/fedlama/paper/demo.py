"""The main job on the embedded data: FedAvg(τ'), FedAvg(φτ') and FedLAMA(τ', φ) with the same clients and steps."""

from __future__ import annotations

from pathlib import Path

from fedlama.run.config import Config, parse_config
from fedlama.run.execute import execute
from fedlama.run.progress import ProgressDisplay

BASE_INTERVAL = 6
INCREASE_FACTOR = 4
POLICIES = {
    "fedavg-short": {"kind": "fedavg", "base_interval": BASE_INTERVAL},
    "fedavg-long": {"kind": "fedavg", "base_interval": BASE_INTERVAL * INCREASE_FACTOR},
    "fedlama": {"kind": "fedlama", "base_interval": BASE_INTERVAL, "increase_factor": INCREASE_FACTOR},
}
SEEDS = 4
LEARNING_RATE = 0.1  # chosen in a small pilot; the README says what 0.2 gives


def demo_config(policy: str, seed: int, iterations: int = 480, learning_rate: float = LEARNING_RATE) -> Config:
    """One cell of the demo; the window is common to all settings, so that they see the same clients."""
    return parse_config(
        {
            "seed": seed,
            "data": {"name": "digits"},
            "partition": {"kind": "dirichlet", "clients": 32, "alpha": 0.5},
            "participation": {"active": 8, "window": BASE_INTERVAL * INCREASE_FACTOR},
            "policy": POLICIES[policy],
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
    paths: list[Path] = []
    for policy in POLICIES:
        for seed in range(seeds):
            config = demo_config(policy, seed, iterations, learning_rate)
            path = out / policy / f"seed{seed}"
            policy_name = str(config.policy.build())
            display.begin(f"{policy_name} seed {seed}")
            execute(config, path, [display], workers=workers, replace=True)
            paths.append(path)
    return paths
