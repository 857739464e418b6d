"""What the tests of Flower's own programs share: an app with a small network, and what its runs must give.

Flower starts a new Python process for every message, some seconds of a core each. So models are small and runs short.
"""

import functools
import json
import shutil
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

import fedlama
from fedlama.data import digits

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"

CLIENTS = 3
SEED, ITERATIONS = 3, 12  # three cycles of FedLAMA(2, 2)
RUN = {
    "base_interval": 2,
    "increase_factor": 2,
    "iterations": ITERATIONS,
    "seed": SEED,
    "clients": 2,
    "share": 0.01,
    "deadline": 400.0,
}
SECONDS = 900.0  # for anything: the machine may be busy
ITERATIONS_OF = {"fedavg": 4, "fedlama": ITERATIONS, "coded": ITERATIONS, "frugal": 4}
# In steps, the example's: base interval times increase factor, which is a cycle of frugal's where that is 4.
WINDOW_OF = {"fedavg": 4, "fedlama": 4, "coded": 4, "frugal": 8}

# The example with a network of 4.7 MB: a hundredth of it can still be told from the bytes of Flower's messages.
TASK = """
from torch import nn

import fedlama

CLIENTS = 3
PARTITION = fedlama.Dirichlet(clients=CLIENTS, alpha=0.5)
LOCAL = fedlama.SGD(learning_rate=0.1, batch_size=16)


def network():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 512), nn.ReLU(), nn.Linear(512, 10)
    )
"""


def network():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 2048),
        nn.ReLU(),
        nn.Linear(2048, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def make_app(folder, client=None):
    """A copy of the example with the network above, and perhaps another client.

    At the start it waits as long for its clients as for a round: on a busy machine they may need it.
    """
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "digits_app" / "task.py").write_text(TASK)
    change(
        folder / "digits_app" / "server.py",
        'deadline=config["deadline"],',
        'deadline=config["deadline"], wait=config["deadline"],',
    )
    if client is not None:
        (folder / "digits_app" / "client.py").write_text(client)
    return folder


def change(file, old, new):
    text = file.read_text()
    changed = text.replace(old, new)
    assert changed != text
    file.write_text(changed)


def play(federation, app, name, **config):
    """Run the app into a folder and wait for its summary; the folder."""
    folder = federation.folder / name
    run = federation.run(app, save_to=str(folder), **{**RUN, **config})
    federation.wait_for(run, folder / "summary.json")
    return folder


@functools.cache
def simulated(setting, clients=2):
    options = {
        "fedavg": {"policy": fedlama.FedAvg(2)},
        "fedlama": {"policy": fedlama.FedLAMA(2, 2)},
        "coded": {
            "policy": fedlama.FedLAMA(2, 2),
            "uplink": fedlama.compress.ErrorFeedback(fedlama.compress.Rotate(1.6)),
            "downlink": fedlama.compress.Rotate(4.0),
        },
        "frugal": fedlama.presets.frugal(2, 0.01),
    }
    return fedlama.simulate(
        network,
        digits(),
        local=fedlama.SGD(learning_rate=0.1, batch_size=16),
        partition=fedlama.Dirichlet(clients=CLIENTS, alpha=0.5),
        participation=fedlama.Participation(clients=clients, window=WINDOW_OF[setting]),
        iterations=ITERATIONS_OF[setting],
        seed=SEED,
        execution="one-by-one",
        **options[setting],
    )


def records_of(folder):
    return [
        json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()
    ]


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def assert_same_run(folder, expected):
    """The same intervals, the same aggregation counts, and weights to float tolerance."""
    records = records_of(folder)
    assert [record["intervals"] for record in records] == [
        record.intervals for record in expected.records
    ]
    excluded = [entry for record in records for entry in record["excluded"]]
    assert excluded == []
    counts = [layer["aggregations"] for layer in summary_of(folder)["layers"]]
    assert counts == [layer.aggregations for layer in expected.layers]
    trained = load_file(folder / "checkpoint" / "model.safetensors")
    for name, values in expected.model.state_dict().items():
        torch.testing.assert_close(trained[name], values, rtol=1e-4, atol=1e-5)


def wait_for_rounds(folder, count):
    wait_until(
        lambda: (folder / "rounds.jsonl").exists() and len(records_of(folder)) >= count,
        f"round {count}",
    )


def wait_until(condition, what):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.1)


def command_line(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def timings_of(folder):
    lines = (folder / "timings.jsonl").read_text().splitlines()
    return [json.loads(line)["seconds"] for line in lines]
