"""A run with very many clients, each of which has state of its own; prints what came of it and the memory it took.

    python million_program.py CLIENTS FOLDER [KILLED_AFTER_ROUND]

It goes on from the checkpoint in the folder, if there is one.
"""

import hashlib
import json
import os
import resource
import signal
import sys
from pathlib import Path

import torch
from torch import nn

import fedlama
from fedlama.data import Shards, arrays
from fedlama.training.checkpointing import Checkpointing, Control

ACTIVE, WINDOWS = 1_000, 6


def main(clients: int, folder: Path, killed_after: int) -> None:
    checkpoint = folder / "checkpoint"
    records = folder / "records"

    def keep(content: bytes, state: object) -> None:
        checkpoint.with_suffix(".partial").write_bytes(content)
        checkpoint.with_suffix(".partial").replace(checkpoint)

    def take(record: fedlama.Record) -> None:
        with records.open("a") as file:
            file.write(f"{record.loss!r}\n")
        if record.round == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)

    keeping = Checkpointing(Control(0.0), keep)
    if checkpoint.exists():
        keeping.resume = checkpoint.read_bytes()
    x = torch.arange(clients, dtype=torch.float32)[:, None].fmod(7) / 7
    y = torch.arange(clients) % 2
    # One sample for each client, in order: dealing them out at random would show nothing more.
    shards = Shards(torch.arange(clients), torch.arange(clients + 1))
    result = fedlama.simulate(
        lambda: nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 2)),
        arrays(x, y, x[:100], y[:100]),
        policy=fedlama.FedLAMA(1, 2),
        local=fedlama.Scaffold(fedlama.SGD(0.1, 1)),
        partition=shards,
        participation=ACTIVE,
        iterations=2 * WINDOWS,
        evaluate_every=2 * WINDOWS,
        on_record=take,
        checkpointing=keeping,
    )
    weights = b"".join(
        tensor.numpy().tobytes() for tensor in result.model.state_dict().values()
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps({"weights": hashlib.sha256(weights).hexdigest(), "kilobytes": peak})
    )


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        Path(sys.argv[2]),
        int(sys.argv[3]) if len(sys.argv) > 3 else 0,
    )
