"""Flower's own programs as processes: its simulation, and a deployment on loopback with TLS and authentication.

Flower starts a new Python process for every message, some seconds of a core each. So one SuperLink with its SuperNodes
serves all tests of the deployment, models are small and runs are short.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from federation import Federation
from safetensors.torch import load_file
from torch import nn

import fedlama
from fedlama.data import digits
from flower.proxy import CountingProxy

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
]

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
SECONDS = 1200.0  # for anything: the machine may be busy
ITERATIONS_OF = {"fedavg": 4, "fedlama": ITERATIONS, "coded": ITERATIONS, "frugal": 4}

# The example with a network of 200 kB, so that bytes of the model can be told from those of Flower's messages.
TASK = """
from torch import nn

import fedlama

CLIENTS = 3
PARTITION = fedlama.Dirichlet(clients=CLIENTS, alpha=0.5)
LOCAL = fedlama.SGD(learning_rate=0.1, batch_size=16)


def network():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )
"""


def network():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 256),
        nn.ReLU(),
        nn.Linear(256, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


# Messages without content, so that what Flower itself sends for a task and its reply can be counted.
EMPTY_SERVER = """
import time
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    folder = Path(context.run_config["save-to"])
    folder.mkdir()
    for sign in ("before", "after"):
        nodes = list(grid.get_node_ids())
        messages = [Message(RecordDict(), node, "train") for node in nodes]
        replies = list(grid.send_and_receive(messages))
        assert len(replies) == context.run_config["clients"]
        assert not any(reply.has_error() for reply in replies)
        (folder / sign).touch()
        time.sleep(2)
"""

EMPTY_CLIENT = """
import time

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    # As in training, the connection is idle so long that it is closed, and the reply needs another one.
    time.sleep(6)
    return Message(RecordDict(), reply_to=message)
"""


def make_app(folder, client=None):
    """A copy of the example with the network above, and perhaps another client."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "digits_app" / "task.py").write_text(TASK)
    if client is not None:
        (folder / "digits_app" / "client.py").write_text(client)
    return folder


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return make_app(tmp_path_factory.mktemp("apps") / "app")


def play(federation, app, name, **config):
    """Run the app into a folder and wait for its summary; the folder."""
    folder = federation.folder / name
    run = federation.run(app, save_to=str(folder), **{**RUN, **config})
    federation.wait_for(run, folder / "summary.json")
    return folder


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
        participation=fedlama.Participation(clients=clients),
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
    assert not any(record["excluded"] for record in records)
    counts = [layer["aggregations"] for layer in summary_of(folder)["layers"]]
    assert counts == [layer.aggregations for layer in expected.layers]
    trained = load_file(folder / "checkpoint" / "model.safetensors")
    for name, values in expected.model.state_dict().items():
        torch.testing.assert_close(trained[name], values, rtol=1e-4, atol=1e-5)


# -- Flower's simulation


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("flwr[simulation] is not installed")
    with Federation(
        tmp_path_factory.mktemp("simulation"), simulated=CLIENTS, seconds=SECONDS
    ) as federation:
        yield federation
    assert not federation.descendants()


@pytest.mark.parametrize("setting", ["fedlama", "coded"])
def test_flowers_simulation_gives_what_simulate_gives(simulation, app, setting):
    folder = play(simulation, app, setting, setting=setting)
    assert_same_run(folder, simulated(setting))


# -- a deployment


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    """A SuperLink and SuperNodes, each of which reaches it through a proxy that counts."""
    with Federation(
        tmp_path_factory.mktemp("deployment"), seconds=SECONDS
    ) as federation:
        federation.proxies = [CountingProxy(federation.port) for _ in range(CLIENTS)]
        for partition in range(CLIENTS):
            start_supernode(federation, partition)
        federation.idle = idle_rates(federation)
        federation.empty = empty_exchange(federation)
        yield federation
        for proxy in federation.proxies:
            proxy.close()
    assert not federation.descendants()


def start_supernode(federation, partition):
    superlink = f"127.0.0.1:{federation.proxies[partition].port}"
    return federation.start_supernode(partition, CLIENTS, superlink=superlink)


def counted(federation):
    up = sum(proxy.up for proxy in federation.proxies)
    down = sum(proxy.down for proxy in federation.proxies)
    return up, down


def idle_rates(federation):
    """Bytes per second up and down of SuperNodes that only ask for work."""
    wait_until(
        lambda: min(proxy.down for proxy in federation.proxies) > 0,
        "a connection of every SuperNode",
    )
    time.sleep(5)
    before = counted(federation)
    time.sleep(20)
    after = counted(federation)
    return (after[0] - before[0]) / 20, (after[1] - before[1]) / 20


def empty_exchange(federation):
    """Bytes up and down of a task and its reply that hold nothing: what is Flower's own."""
    app = make_app(federation.folder / "empty-app", EMPTY_CLIENT)
    (app / "digits_app" / "server.py").write_text(EMPTY_SERVER)
    folder = federation.folder / "empty"
    run = federation.run(app, save_to=str(folder), clients=CLIENTS)
    # The first exchange brings every node the app
    federation.wait_for(run, folder / "before")
    before = counted(federation)
    federation.wait_for(run, folder / "after")
    after = counted(federation)
    return (after[0] - before[0]) / CLIENTS, (after[1] - before[1]) / CLIENTS


@dataclass
class Measured:
    """A run's folder and summary, and the bytes that passed for it, with what may be beside the ledger's."""

    folder: Path
    summary: dict
    up: float
    down: float
    beside_up: float
    beside_down: float


@pytest.fixture(scope="module")
def measured(deployment, app):
    """Runs with four settings."""
    found = {}
    for setting in ("fedavg", "fedlama", "coded", "frugal"):
        before = counted(deployment)
        started = time.monotonic()
        folder = play(
            deployment, app, setting, setting=setting, iterations=ITERATIONS_OF[setting]
        )
        seconds = time.monotonic() - started
        after = counted(deployment)
        up = after[0] - before[0]
        down = after[1] - before[1]
        # Two clients per round, and a question to each at the start
        exchanges = 2 * rounds_of(setting) + CLIENTS
        messages = 2 * exchanges  # a task and its reply
        beside = []
        for idle, empty in zip(deployment.idle, deployment.empty, strict=True):
            # Flower's own: what an exchange without content costs, and that SuperNodes ask for work all the time.
            beside.append(5_000 * messages + empty * exchanges + idle * seconds)
        found[setting] = Measured(folder, summary_of(folder), up, down, *beside)
    return found


@pytest.mark.parametrize("setting", ["fedavg", "fedlama", "coded", "frugal"])
def test_a_real_deployment_gives_what_simulate_gives(measured, setting):
    assert_same_run(measured[setting].folder, simulated(setting))


@pytest.mark.parametrize("setting", ["fedavg", "fedlama", "coded", "frugal"])
def test_the_ledgers_bytes_are_those_at_the_socket(measured, setting, app):
    run = measured[setting]
    up = run.summary["uplink_bytes"]
    down = run.summary["downlink_bytes"]
    assert up <= run.up <= 1.03 * up + run.beside_up
    files = [
        path
        for path in app.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    code = CLIENTS * sum(path.stat().st_size for path in files)  # every node is sent it
    assert down <= run.down <= 1.03 * down + run.beside_down + code


def test_fedlama_and_frugal_send_less_by_the_ledgers_ratio(measured):
    fedavg = measured["fedavg"]
    for setting in ("fedlama", "coded", "frugal"):
        run = measured[setting]
        # Every round of FedAvg sends as much as any other, so a few of them tell about as many as one likes.
        longer = rounds_of(setting) / rounds_of("fedavg")
        ratio = run.summary["uplink_bytes"] / (longer * fedavg.summary["uplink_bytes"])
        assert ratio < 0.9
        assert run.up <= 1.03 * ratio * longer * fedavg.up + run.beside_up


def rounds_of(setting):
    return ITERATIONS_OF[setting] // 2


def test_an_unregistered_supernode_is_refused(deployment):
    name = deployment.start_supernode(99, 100, register=False)
    end = time.monotonic() + SECONDS
    while deployment.processes[name].poll() is None:
        assert time.monotonic() < end, deployment.log(name)
        time.sleep(0.5)
    assert deployment.processes[name].returncode != 0
    deployment.stop(name)


def test_a_run_whose_serverapp_was_killed_is_resumed_from_the_last_cycle(
    deployment, app
):
    folder = deployment.folder / "cut"
    deployment.run(app, save_to=str(folder), **{**RUN, "clients": 1})
    wait_for_rounds(folder, 3)  # one cycle has two
    servers = [
        process
        for process in deployment.descendants()
        if b"flwr-serverapp" in command_line(process)
    ]
    assert servers
    for process in servers:
        os.kill(process, signal.SIGKILL)
    assert play(deployment, app, "cut", resume=True, clients=1) == folder
    assert [record["round"] for record in records_of(folder)] == list(range(1, 7))
    assert_same_run(folder, simulated("fedlama", clients=1))


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


# Clients 1 and 2 lie in each of three rounds, each time in another way.
HOSTILE_CLIENT = """
import json

from digits_app.task import LOCAL, PARTITION, network
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedlama.data import digits
from fedlama.flower import client_app

honest = client_app(network, digits(), local=LOCAL, partition=PARTITION)
app = ClientApp()


@app.query()
def query(message, context):
    return honest(message, context)


@app.train()
def train(message, context):
    reply = honest(message, context)
    partition = context.node_config["partition-id"]
    if partition == 0:
        return reply
    array = reply.content["layers"]["layers"]
    _, _, report = array.stype.partition(" ")
    nan = bytes([0, 0, 192, 127])
    lies = [
        ("layers", nan * sum(one.numel() for one in network().parameters()), "fedlama.float32 " + report, None),
        ("layers", nan * 7, "fedlama.float32 " + report, None),
        ("another.weight", array.data, array.stype, None),
        ("layers", array.data[:-3], array.stype, None),
        ("layers", array.data[:64], "numpy.ndarray " + report, (10**12,)),
        ("layers", bytes(10**9), array.stype, None),
    ]
    _, _, task = message.content["layers"]["layers"].stype.partition(" ")
    round_ = json.loads(task)["step"] // 2
    name, data, stype, shape = lies[2 * round_ + partition - 1]
    lie = Array(dtype="uint8", shape=shape or (len(data),), stype=stype, data=data)
    content = RecordDict({"layers": ArrayRecord({name: lie})})
    return Message(content, reply_to=message)
"""


def test_hostile_clients_are_excluded_and_the_others_go_on(deployment):
    app = make_app(deployment.folder / "hostile-app", HOSTILE_CLIENT)
    # Every round is a cycle of four, cut short, so that whoever was excluded is back in the next one.
    config = {"setting": "hostile", "increase_factor": 1, "iterations": 6, "clients": 3}
    server = app / "digits_app" / "server.py"
    code = "uplink=fedlama.compress.Rotate(2.0), "
    server.write_text(
        server.read_text().replace("**setting(config), ", f"**setting(config), {code}")
    )
    folder = play(deployment, app, "hostile", **config)
    records = records_of(folder)
    assert [
        [entry["client"] for entry in record["excluded"]] for record in records
    ] == [[1, 2]] * 3
    reasons = [entry["reason"] for record in records for entry in record["excluded"]]
    assert reasons[0] == "not finite"
    for reason in reasons[1:5]:
        assert reason.startswith("refused"), reasons
    # Whether a gigabyte arrives before the deadline is the machine's affair.
    assert reasons[5].startswith("refused") or reasons[5] == "missed the deadline", (
        reasons
    )


def test_supernodes_that_end_do_not_stop_the_run_and_take_part_again_when_they_are_back(
    deployment, app, measured
):
    """One is asked to end in the middle of a cycle, another is killed while it uploads; both are started again."""
    folder = deployment.folder / "ended"
    # Whoever is away costs every cycle a deadline, so it should be no longer than this machine needs.
    ends = [
        json.loads(line)["seconds"]
        for line in (measured["fedlama"].folder / "timings.jsonl")
        .read_text()
        .splitlines()
    ]
    deadline = max(20.0, 6 * max(end - start for start, end in pairwise(ends)))
    config = {"iterations": 400, "clients": 3, "deadline": deadline}
    run = deployment.run(app, save_to=str(folder), **{**RUN, **config})
    wait_for_rounds(folder, 1)  # of two
    deployment.stop("supernode-1", signal.SIGTERM)
    proxy = deployment.proxies[2]
    proxy.bytes_per_second = 30_000
    passed = deque([proxy.up], maxlen=40)

    def uploads():
        # More in some seconds than a SuperNode sends that only asks for work.
        passed.append(proxy.up)
        return passed[-1] - passed[0] > 50_000

    wait_until(uploads, "an upload")
    deployment.stop("supernode-2", signal.SIGKILL)
    # What it had sent and the proxy not yet passed on would complete its message
    proxy.cut()
    proxy.bytes_per_second = None
    for partition in (1, 2):
        supervise(deployment, partition)
    # A cycle of two rounds may have begun without them; the next one has them.
    wait_until(lambda: ends_with_a_whole_cycle(folder), "a cycle with everyone")
    deployment.flwr("stop", run, "here")
    records = records_of(folder)
    reasons = [[entry["client"] for entry in record["excluded"]] for record in records]
    assert not reasons[0]
    assert {client for clients in reasons for client in clients} == {1, 2}
    model = 4 * sum(one.numel() for one in network().parameters())
    # They came back with the whole model: at a cycle's start everybody is sent it here, for a cycle is a window.
    first_of_cycle = [record for record in records if record["round"] % 2][-1]
    assert first_of_cycle["downlink_bytes"] == 3 * model


def ends_with_a_whole_cycle(folder):
    records = records_of(folder)
    last = records[-2:]
    return len(records) % 2 == 0 and not any(record["excluded"] for record in last)


def supervise(federation, partition):
    """Start a SuperNode until it stays: Flower refuses the key until it has noticed that the old one is away."""
    end = time.monotonic() + SECONDS
    name = f"supernode-{partition}"
    while True:
        assert time.monotonic() < end, federation.log(name)
        start_supernode(federation, partition)
        try:
            federation.processes[name].wait(timeout=12)
        except subprocess.TimeoutExpired:
            return
        federation.stop(name)
