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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from federation import Federation, free_port
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
SECONDS = 600.0  # for anything: the machine may be busy
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
    """A run's folder and summary, and what passed the socket for it without what is Flower's own."""

    folder: Path
    summary: dict
    up: float
    down: float
    exchanges: int  # a task, or a question, and its reply


@pytest.fixture(scope="module")
def measured(deployment, app):
    """Runs with four settings."""
    found = {}
    for setting in ("fedavg", "fedlama", "coded", "frugal"):
        before = counted(deployment)
        started = time.monotonic()
        folder = play(
            deployment,
            app,
            setting,
            setting=setting,
            iterations=ITERATIONS_OF[setting],
            increase_factor=WINDOW_OF[setting] // RUN["base_interval"],
        )
        # After the summary, some clients are asked to forget the run.
        wait_until(lambda: not at_work(deployment), "the end of the run's programs")
        time.sleep(2)
        seconds = time.monotonic() - started
        after = counted(deployment)
        exchanges = exchanges_of(setting)
        net = []
        for own in range(2):
            # Flower's own: what an exchange without content costs, and that SuperNodes ask for work all the time.
            idle = deployment.idle[own] * seconds
            empty = deployment.empty[own] * exchanges
            net.append(after[own] - before[own] - idle - empty)
        found[setting] = Measured(folder, summary_of(folder), *net, exchanges)
    return found


def exchanges_of(setting):
    """Two clients per round; each client is asked who it is, and whoever is not in the last window, to forget."""
    participation = fedlama.Participation(clients=2)
    windows = -(-ITERATIONS_OF[setting] // WINDOW_OF[setting])
    *earlier, last = [
        participation.cohort(CLIENTS, SEED, window) for window in range(windows)
    ]
    trained_before = {client for cohort in earlier for client in cohort}
    asked_to_forget = trained_before - set(last)
    return 2 * rounds_of(setting) + CLIENTS + len(asked_to_forget)


def at_work(federation):
    """Whether a ServerApp or a ClientApp runs."""
    for process in federation.descendants():
        line = command_line(process)
        if b"flwr-serverapp" in line or b"flwr-clientapp" in line:
            return True
    return False


@pytest.mark.parametrize("setting", ["fedavg", "fedlama", "coded", "frugal"])
def test_a_real_deployment_gives_what_simulate_gives(measured, setting):
    assert_same_run(measured[setting].folder, simulated(setting))


@pytest.mark.parametrize("setting", ["fedavg", "fedlama", "coded", "frugal"])
def test_the_ledgers_bytes_are_those_at_the_socket(measured, setting, app):
    run = measured[setting]
    up = run.summary["uplink_bytes"]
    allowed = 0.03 * up + 5_000 * run.exchanges
    # Otherwise a ledger that is a third off would pass.
    assert allowed < up / 3
    assert abs(run.up - up) <= allowed

    # Every node is sent the app's files, too, in an archive that is no larger than they are.
    files = [
        path
        for path in app.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    code = CLIENTS * sum(path.stat().st_size for path in files)
    down = run.summary["downlink_bytes"]
    apart = 0.03 * down + 5_000 * run.exchanges
    assert -apart <= run.down - down <= apart + code


@pytest.mark.parametrize(
    ("setting", "largest"), [("fedlama", 0.9), ("coded", 0.06), ("frugal", 0.04)]
)
def test_fedlama_and_frugal_send_less_by_the_ledgers_ratio(measured, setting, largest):
    fedavg = measured["fedavg"]
    run = measured[setting]
    # Every round of FedAvg sends as much as any other, so a few of them tell about as many as one likes.
    longer = rounds_of(setting) / rounds_of("fedavg")
    ratio = run.summary["uplink_bytes"] / (longer * fedavg.summary["uplink_bytes"])
    assert ratio < largest

    # The same at the socket, as far as the bytes of either run are known there.
    of_fedavg = longer * fedavg.up
    apart = 5_000 * (run.exchanges + ratio * longer * fedavg.exchanges)
    assert abs(run.up - ratio * of_fedavg) <= 0.03 * ratio * of_fedavg + apart


def rounds_of(setting):
    return ITERATIONS_OF[setting] // 2


def test_an_unregistered_supernode_is_refused_until_its_key_is_registered(deployment):
    before = listed(deployment)
    name = deployment.start_supernode(99, 100, register=False)
    # Flower's code for a key that may not take part; another reason, such as a wrong certificate, has another one.
    assert_refused(deployment, name, code=2004)
    assert set(listed(deployment)) == set(before)

    # The same key, registered, is let in.
    public = deployment.folder / f"{name}.pub"
    deployment.flwr("supernode", "register", str(public), "here")
    deployment.start_supernode(99, 100)
    wait_until(lambda: CONNECTED in deployment.log(name), "its connection")
    (node,) = set(listed(deployment)) - set(before)
    assert listed(deployment)[node] == "online"
    deployment.stop(name)
    deployment.flwr("supernode", "unregister", node, "here")


def test_a_supernode_that_would_register_itself_is_refused(deployment):
    """Without a key of its own it asks the SuperLink to take a new one, which only authentication forbids."""
    before = listed(deployment)
    command = ["flower-supernode", "--superlink", f"127.0.0.1:{deployment.port}"]
    command += ["--root-certificates", str(deployment.folder / "ca.crt")]
    command += ["--port", str(free_port())]
    command += ["--node-config", "partition-id=99 num-partitions=100"]
    deployment.start("stranger", command)
    assert_refused(deployment, "stranger", code=2001)
    assert set(listed(deployment)) == set(before)


def assert_refused(federation, name, *, code):
    """A SuperNode ends by itself, and the SuperLink's answer is why."""
    process = federation.processes[name]
    wait_until(
        lambda: process.poll() is not None or CONNECTED in federation.log(name),
        "a refusal, or a connection",
    )
    federation.stop(name)
    assert CONNECTED not in federation.log(name)
    assert process.returncode > 0
    assert f"[code: {code}]" in federation.log(name)


CONNECTED = "SuperNode ID: "  # in the log of a SuperNode that was let in


def listed(federation):
    """The status of every node that the SuperLink knows, by its id."""
    printed = federation.flwr("supernode", "list", "here", "--format", "json")
    found = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
    return {node["node-id"]: node["status"] for node in found["nodes"]}


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
    first_cycle = timings_of(folder)[:2]
    assert play(deployment, app, "cut", resume=True, clients=1) == folder
    assert [record["round"] for record in records_of(folder)] == list(range(1, 7))
    # Measured seconds are never the same twice: the first cycle was not trained again.
    assert timings_of(folder)[:2] == first_cycle
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
        ("layers", bytes(10**9), array.stype, None),
        ("layers", array.data[:64], "numpy.ndarray " + report, (10**12,)),
        ("layers", array.data[:-3], array.stype, None),
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
    config["deadline"] = 150.0
    server = app / "digits_app" / "server.py"
    plain = server.read_text()
    code = "uplink=fedlama.compress.Rotate(2.0),"
    coded = plain.replace("**setting(config),", f"**setting(config), {code}")
    assert coded != plain
    server.write_text(coded)
    folder = play(deployment, app, "hostile", **config)
    # Otherwise nothing would be truncated but plain numbers.
    assert summary_of(folder)["codec"].startswith("Rotate")
    records = records_of(folder)
    assert [
        [entry["client"] for entry in record["excluded"]] for record in records
    ] == [[1, 2]] * 3
    reasons = [entry["reason"] for record in records for entry in record["excluded"]]
    assert reasons[0] == "not finite"
    for reason in (*reasons[1:3], reasons[4]):
        assert reason.startswith("refused"), reasons
    # Whether a gigabyte arrives before the deadline is the machine's affair; that nobody waits longer is ours.
    is_late = reasons[3] == "missed the deadline"
    assert is_late or reasons[3].startswith("refused"), reasons
    # Who is late may still be sending when the next cycle begins.
    assert is_late or reasons[5].startswith("refused"), reasons
    begin, end, _ = timings_of(folder)
    assert end - begin < config["deadline"] + 5


def test_supernodes_that_end_do_not_stop_the_run_and_take_part_again_when_they_are_back(
    deployment, measured
):
    """One is asked to end in the middle of a cycle, another is killed while it uploads; both are started again."""
    folder = deployment.folder / "ended"
    app = make_app(deployment.folder / "ended-app")
    # One window for the whole run, with a coded downlink: only who enters is sent the whole model.
    server = app / "digits_app" / "server.py"
    plain = server.read_text()
    code = "downlink=fedlama.compress.Rotate(4.0),"
    lasting = plain.replace("window=window,", f"window=100 * window, {code}")
    assert lasting != plain
    server.write_text(lasting)
    # Whoever is away costs every cycle a deadline, so it should be no longer than this machine needs.
    ends = timings_of(measured["fedlama"].folder)
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
    back = {}  # seconds of the run
    was_refused = {}
    for partition in (1, 2):
        was_refused[partition] = supervise(deployment, partition)
        back[partition] = seconds_of_the_run(folder)
    wait_until(lambda: ends_with_a_whole_cycle(folder), "a cycle with everyone")
    # And one in which nobody enters
    rounds = len(records_of(folder))
    wait_for_rounds(folder, rounds + 2)
    deployment.flwr("stop", run, "here")

    records = records_of(folder)
    reasons = [[entry["client"] for entry in record["excluded"]] for record in records]
    assert not reasons[0]
    assert {client for clients in reasons for client in clients} == {1, 2}

    # From the next cycle on: one has signed off. The other was late with a reply that never became whole; if it was
    # refused at first, it was seen to be away, and otherwise it may not be addressed for one deadline more.
    ends = timings_of(folder)
    starts = [0.0, *ends]
    late = min(number for number, clients in enumerate(reasons) if 2 in clients)
    free = back[2]
    if not was_refused[2]:
        free = max(free, ends[late] + deadline)
    for first in range(0, len(records) - 1, 2):
        absent = {*reasons[first], *reasons[first + 1]}
        if starts[first] > back[1]:
            assert 1 not in absent
        if starts[first] > free:
            assert 2 not in absent

    # With the whole model; who stays is sent an eighth of it.
    model = 4 * sum(one.numel() for one in network().parameters())
    returns = 0
    for first in range(2, len(records) - 1, 2):
        excluded_before = {*reasons[first - 2], *reasons[first - 1]}
        entering = excluded_before - set(reasons[first])
        returns += len(entering)
        assert records[first]["downlink_bytes"] >= len(entering) * model
    assert returns >= 2
    assert records[rounds]["downlink_bytes"] < model


def timings_of(folder):
    lines = (folder / "timings.jsonl").read_text().splitlines()
    return [json.loads(line)["seconds"] for line in lines]


def seconds_of_the_run(folder):
    """Now, as the run's timings count."""
    written = (folder / "timings.jsonl").stat().st_mtime
    return timings_of(folder)[-1] + time.time() - written


def ends_with_a_whole_cycle(folder):
    records = records_of(folder)
    last = records[-2:]
    return len(records) % 2 == 0 and not any(record["excluded"] for record in last)


def supervise(federation, partition):
    """Start a SuperNode until it stays: Flower refuses the key until it has noticed that the old one is away.

    It notices within a minute of the first attempt, for which a supervisor tries. How long a program needs to start is
    the machine's affair. What is returned is whether the first attempt was refused. Then nothing is tried before Flower
    has noticed, so that the node is away for as long as its program needs to start.
    """
    last_attempt = time.monotonic() + 60
    name = f"supernode-{partition}"
    was_refused = False
    while True:
        connected = federation.log(name).count(CONNECTED)
        start_supernode(federation, partition)
        process = federation.processes[name]
        wait_until(
            lambda now=connected, process=process: (
                federation.log(name).count(CONNECTED) > now
                or process.poll() is not None
            ),
            "a connection, or a refusal",
        )
        if process.poll() is None:
            return was_refused
        federation.stop(name)
        was_refused = True
        asked = time.monotonic()
        while "offline" not in listed(federation).values():
            # To ask takes seconds of a core, so what counts is when the question began.
            assert asked < last_attempt, federation.log(name)
            asked = time.monotonic()


@pytest.fixture
def example(tmp_path):
    """The example with two rounds in place of twelve, and folders of its own."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    about = folder / "pyproject.toml"
    text = about.read_text()
    shorter = text.replace("iterations = 72", "iterations = 12")
    assert shorter != text
    about.write_text(shorter)
    (tmp_path / "temporary").mkdir()
    return ExampleScript(tmp_path)


class ExampleScript:
    """deploy.py as a program. All that it writes is below a folder for temporary files."""

    def __init__(self, folder):
        self.program = folder / "example" / "deploy.py"
        self.temporary = folder / "temporary"
        self.out = folder / "out"
        self.err = folder / "err"

    @contextmanager
    def running(self, *settings):
        with self.out.open("wb") as out, self.err.open("wb") as err:
            script = subprocess.Popen(
                [sys.executable, str(self.program), *settings],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )
            try:
                yield script
            finally:
                script.kill()
                script.wait()

    def said(self):
        """What it said beside the table."""
        return self.err.read_text().splitlines()

    def assert_nothing_is_left(self):
        assert of_folder(self.temporary) == []
        assert list(self.temporary.iterdir()) == []


def test_the_examples_script_trains_prints_its_table_and_ends_everything(example):
    with example.running("frugal") as script:
        status = script.wait(timeout=SECONDS)
    assert status == 0, example.said()
    header, row = example.out.read_text().splitlines()
    assert header.split() == ["accuracy", "up,", "kB", "down,", "kB", "seconds"]
    name, accuracy, up, down, seconds = row.split()
    assert name == "frugal"
    assert 0 < float(accuracy) < 1
    # In each of two rounds two clients are sent the whole model, 6,570 numbers, and send a twentieth of its bytes.
    assert int(down) == round(4 * 6570 * 4 / 1000)
    assert 0 < int(up) <= 0.05 * int(down) + 1
    assert int(seconds) > 0
    assert example.said() == ["frugal begins"]
    example.assert_nothing_is_left()


def test_the_examples_script_ends_everything_when_it_is_asked_to(example):
    with example.running("fedlama") as script:
        wait_until(
            lambda: (
                script.poll() is not None
                or list(example.temporary.glob("*/fedlama/rounds.jsonl"))
            ),
            "the first round",
        )
        assert script.poll() is None, example.said()
        assert of_folder(example.temporary)
        script.send_signal(signal.SIGTERM)
        assert script.wait(timeout=SECONDS) == 128 + signal.SIGTERM
    # Nothing but the table's head, and no traceback
    assert len(example.out.read_text().splitlines()) == 1
    assert example.said() == ["FedLAMA begins"]
    example.assert_nothing_is_left()


def of_folder(folder):
    """The ids of all processes whose FLWR_HOME is below this folder."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            environment = (process / "environ").read_bytes()
            if f"FLWR_HOME={folder}".encode() in environment:
                found.append(int(process.name))
    return found
