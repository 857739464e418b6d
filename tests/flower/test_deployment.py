"""A deployment on loopback: Flower's own programs as processes, with TLS and authentication.

One SuperLink with its SuperNodes serves all tests of this file.
"""

import json
import os
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from federation import Federation, free_port

import fedlama
from flower.programs import (
    CLIENTS,
    ITERATIONS_OF,
    RUN,
    SECONDS,
    SEED,
    WINDOW_OF,
    assert_same_run,
    change,
    command_line,
    make_app,
    network,
    play,
    records_of,
    simulated,
    summary_of,
    timings_of,
    wait_for_rounds,
    wait_until,
)
from flower.proxy import CountingProxy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
]

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


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return make_app(tmp_path_factory.mktemp("apps") / "app")


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
    began = time.monotonic()
    # Meanwhile what the runs are compared with is trained, none of which passes the network.
    for setting in ITERATIONS_OF:
        simulated(setting)
    simulated("fedlama", clients=1)
    time.sleep(max(0.0, began + 20 - time.monotonic()))
    seconds = time.monotonic() - began
    after = counted(federation)
    return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds


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
    after = listed(deployment)
    (node,) = set(after) - set(before)
    assert after[node] == "online"
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
    before = received(deployment)
    deployment.run(app, save_to=str(folder), **{**RUN, "clients": 1})
    # One cycle has two rounds. All clients are asked who they are, and one is in the middle of the fourth round.
    wait_for_rounds(folder, 3)
    wait_until(lambda: received(deployment) >= before + CLIENTS + 4, "the next task")
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


def received(federation):
    """How many messages SuperNodes have fetched."""
    logs = [federation.log(f"supernode-{partition}") for partition in range(CLIENTS)]
    return sum(log.count("Received successfully") for log in logs)


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


def test_hostile_clients_are_excluded_and_the_others_go_on(deployment, measured):
    app = make_app(deployment.folder / "hostile-app", HOSTILE_CLIENT)
    # Every round is a cycle of four, cut short, so that whoever was excluded is back in the next one.
    config = {"setting": "hostile", "increase_factor": 1, "iterations": 6, "clients": 3}
    usual = longest_round(measured)
    # Of all that is sent, only the gigabyte may come too late.
    config["deadline"] = max(150.0, 12 * usual)
    change(
        app / "digits_app" / "server.py",
        "**setting(config),",
        "**setting(config), uplink=fedlama.compress.Rotate(2.0),",
    )
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
    # What is left to do then is less than a round.
    assert end - begin < config["deadline"] + 5 + usual


def test_supernodes_that_end_do_not_stop_the_run_and_take_part_again_when_they_are_back(
    deployment, measured
):
    """One is asked to end in the middle of a cycle, another is killed while it uploads; both are started again."""
    folder = deployment.folder / "ended"
    app = make_app(deployment.folder / "ended-app")
    # One window for the whole run, with a coded downlink: only who enters is sent the whole model.
    change(
        app / "digits_app" / "server.py",
        "window=window,",
        "window=100 * window, downlink=fedlama.compress.Rotate(4.0),",
    )
    # Whoever is away costs every cycle a deadline, so it should be no longer than this machine needs.
    deadline = max(30.0, 8 * longest_round(measured))
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


def longest_round(measured):
    """How many seconds this machine takes for a round in which nothing is wrong."""
    ends = timings_of(measured["fedlama"].folder)
    return max(end - start for start, end in pairwise(ends))


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
            time.sleep(2)
            asked = time.monotonic()
