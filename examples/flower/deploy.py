"""Start a real federation on this machine, train with FedAvg, FedLAMA and codes, print a table, and end everything.

    python examples/flower/deploy.py

SuperLink and SuperNodes are processes that talk over TLS, and SuperNodes prove who they are. On two idle cores it takes
some minutes: Flower starts a new Python process for every message.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from digits_app.task import CLIENTS
from federation import APP, Federation

SETTINGS = {
    "FedAvg": {"increase_factor": 1},
    "FedLAMA": {"increase_factor": 4},
    "FedLAMA, coded": {"increase_factor": 4, "uplink_bits": 1.6, "downlink_bits": 4.0},
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Federation(Path(folder), seconds=1800) as federation:
        for partition in range(CLIENTS):
            federation.start_supernode(partition, CLIENTS)
        print(f"{'':16} {'accuracy':>8} {'up, kB':>8} {'down, kB':>8} {'seconds':>8}")
        for number, (name, config) in enumerate(SETTINGS.items()):
            out = Path(folder) / f"run-{number}"
            run = federation.run(APP, save_to=str(out), **config)
            status = federation.wait(run, out / "summary.json")
            if status != "finished:completed":
                raise SystemExit(f"{name}: {status}\n{federation.run_log(run)}")
            said = json.loads((out / "summary.json").read_text())
            up = said["uplink_bytes"] / 1000
            down = said["downlink_bytes"] / 1000
            print(f"{name:16} {said['accuracy']:8.3f} {up:8.0f} {down:8.0f} {said['seconds']:8.0f}")


if __name__ == "__main__":
    main()
