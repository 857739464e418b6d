"""Start a real federation on this machine, train with FedAvg, FedLAMA, codes and frugal, print a table, end everything.

    python examples/flower/deploy.py [fedavg] [fedlama] [coded] [frugal]

SuperLink and SuperNodes are processes that talk over TLS, and SuperNodes prove who they are. On two idle cores it takes
some minutes: Flower starts a new Python process for every message.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from digits_app.task import CLIENTS
from federation import APP, Federation, leave_when_asked

SETTINGS = {
    "fedavg": "FedAvg",
    "fedlama": "FedLAMA",
    "coded": "FedLAMA, coded",
    "frugal": "frugal",
}


def main() -> None:
    chosen = parse()
    leave_when_asked()
    with (
        tempfile.TemporaryDirectory() as folder,
        Federation(Path(folder), seconds=1800) as federation,
    ):
        for partition in range(CLIENTS):
            federation.start_supernode(partition, CLIENTS)
        print(
            f"{'':16} {'accuracy':>8} {'up, kB':>8} {'down, kB':>8} {'seconds':>8}",
            flush=True,
        )
        for setting in chosen:
            # Not in the table: a run takes a minute or more.
            print(f"{SETTINGS[setting]} begins", file=sys.stderr, flush=True)
            out = Path(folder) / setting
            run = federation.run(APP, save_to=str(out), setting=setting)
            federation.wait_for(run, out / "summary.json")
            said = json.loads((out / "summary.json").read_text())
            up = said["uplink_bytes"] / 1000
            down = said["downlink_bytes"] / 1000
            print(
                f"{SETTINGS[setting]:16} {said['accuracy']:8.3f} {up:8.0f} {down:8.0f} {said['seconds']:8.0f}",
                flush=True,
            )


def parse() -> list[str]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="SETTING",
        help=f"of {', '.join(SETTINGS)} (default: all)",
    )
    chosen = parser.parse_args().settings
    for name in chosen:
        if name not in SETTINGS:
            parser.error(f"choose from {', '.join(SETTINGS)}, not {name!r}")
    return chosen or list(SETTINGS)


if __name__ == "__main__":
    main()
