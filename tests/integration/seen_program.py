"""A run whose clients all keep state of their own; prints the most memory that it took, in kilobytes.

    python seen_program.py CLIENTS FOLDER

It stops before its last window, with most clients in the checkpoint, or goes on from there.
"""

import json
import resource
import signal
import sys
from pathlib import Path

import torch
from torch import nn

import fedlama
from fedlama.data import Shards, arrays

ACTIVE = 500


def main(clients: int, folder: Path) -> None:
    windows = clients // ACTIVE
    resume = folder.exists()

    def stop(record: fedlama.Record) -> None:
        if not resume and record.round == windows - 1:
            signal.raise_signal(signal.SIGTERM)

    x = torch.arange(clients, dtype=torch.float32)[:, None].fmod(7).repeat(1, 60) / 7
    y = torch.arange(clients) % 2
    try:
        fedlama.simulate(
            lambda: nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 2)),
            arrays(x, y, x[:100], y[:100]),
            policy=fedlama.FedAvg(1),
            local=fedlama.Scaffold(fedlama.SGD(0.1, 1)),
            partition=Shards(torch.arange(clients), torch.arange(clients + 1)),
            participation=ACTIVE,
            iterations=windows,
            evaluate_every=windows,
            on_record=stop,
            out=folder,
            resume=resume,
            checkpoint_minutes=60,
        )
    except fedlama.RunError:
        assert not resume
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    saved = sum(
        path.stat().st_size for path in folder.glob("checkpoint/step-*.safetensors")
    )
    print(json.dumps({"kilobytes": peak, "saved": saved}))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
