"""The script behind the table of predictions and outcomes in results/other.md, on numbers checked by hand."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "results" / "diagnosed.py"


def write_run(folder, setting, seed, policy, accuracy, cost, uplink_bytes):
    place = folder / setting / f"seed{seed}"
    place.mkdir(parents=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in policy.items()]
    (place / "config.toml").write_text("[policy]\n" + "\n".join(lines) + "\n")
    summary = {"accuracy": accuracy, "cost": cost, "uplink_bytes": uplink_bytes}
    (place / "summary.json").write_text(json.dumps(summary))


def test_predictions_stand_beside_outcomes(tmp_path):
    fedavg = {"kind": "fedavg", "base_interval": 6, "increase_factor": 1}
    rarely = {"kind": "fedavg", "base_interval": 24, "increase_factor": 1}
    fedlama = {"kind": "fedlama", "base_interval": 6, "increase_factor": 4}
    write_run(tmp_path / "runs", "often", 0, fedavg, 0.9, 1.0, 1600)
    write_run(tmp_path / "runs", "rarely", 0, rarely, 0.8, 1.0, 400)
    write_run(tmp_path / "runs", "adaptive", 0, fedlama, 0.86, 0.4, 800)
    write_run(tmp_path / "runs", "adaptive", 1, fedlama, 0.88, 0.6, 800)
    predictions = [{"cost": 1.0, "at_equal_bytes": 1.0}] + [
        {"cost": 0.45 / factor, "at_equal_bytes": 0.7} for factor in (1, 2, 4)
    ]
    diagnosis = tmp_path / "found.json"
    diagnosis.write_text(json.dumps({"base_interval": 6, "predictions": predictions}))
    arguments = [sys.executable, SCRIPT, f"Some={diagnosis}:{tmp_path / 'runs'}"]
    said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    # 800 is half way from 400 to 1600 in logarithms: FedAvg has 85 % there. φ = 2 and 8 were not run.
    assert said.splitlines()[2:] == [
        "| Some | FedLAMA(6, 4) | 2 | 22.5 % | 50.0 % | 0.70 × | −3.0 | +2.0 |"
    ]
