"""One run on two hosts: the bits of one process; a host that is cut off; going on afterwards.

The hosts are network namespaces (`two_hosts.py`), with torchrun on each of them.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from two_hosts import REPOSITORY, SECONDS, TwoHosts, why_not

from fedlama.base import InputError, RunError
from fedlama.processes import world
from fedlama.processes.hosts import BEAT, HostPlace, Watch, silence_allowed

COMPARED = ("rounds.jsonl", "checkpoint/model.safetensors", "config.toml")
# Before the cable is pulled; a checkpoint is saved every second round
ENOUGH_ROUNDS = 20
SILENCE = 15  # seconds, so that the test need not wait for a minute

CONFIG = """
[data]
name = "digits"
[model]
name = "small_cnn"
[partition]
kind = "dirichlet"
clients = 20
min_samples = 5
[participation]
active = 6
window = 24
[policy]
base_interval = 3
increase_factor = 2
[local]
momentum = 0.9
[train]
iterations = 480
evaluate_every = 240
checkpoint_minutes = 0.0
[output]
tensorboard = false
"""


@pytest.fixture(scope="module")
def reason() -> str | None:
    return why_not()


@pytest.fixture
def hosts(reason):
    if reason:
        pytest.skip(f"two hosts: {reason}")
    with TwoHosts() as made:
        yield made
    assert not [name for name in made.names if name in listed_namespaces()]


def listed_namespaces() -> str:
    return subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("two-hosts") / "config.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def alone(config, reason) -> dict[str, bytes]:
    """The run in one process."""
    if reason:
        pytest.skip(f"two hosts: {reason}")
    folder = config.parent / "alone"
    command = [
        sys.executable,
        "-m",
        "fedlama",
        "run",
        str(config),
        "--out",
        str(folder),
        "--workers",
        "1",
    ]
    subprocess.run(
        command, check=True, capture_output=True, timeout=SECONDS, cwd=REPOSITORY
    )
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in COMPARED}


def logs(folder: Path) -> str:
    parts = [
        f"host {host}:\n{(folder / f'host{host}.log').read_text(errors='replace')}"
        for host in (0, 1)
    ]
    return "\n".join(parts)


def wait_for(condition, what: str, folder: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen\n{logs(folder)}"
        time.sleep(0.05)


def finish(programs: list[subprocess.Popen], folder: Path) -> None:
    for program in programs:
        try:
            code = program.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            pytest.fail(f"a host did not come to its end\n{logs(folder)}")
        assert code == 0, logs(folder)


@pytest.mark.slow
def test_two_hosts_give_the_bits_of_one_process(hosts, config, alone, tmp_path):
    run = tmp_path / "run"
    words = ["-m", "fedlama", "run", str(config), "--out", str(run)]
    finish(
        hosts.torchrun(*words, folder=tmp_path, numbered=False, processes=2), tmp_path
    )
    assert contents(run) == alone


@pytest.mark.slow
def test_a_host_that_is_cut_off_ends_the_run_and_a_restart_goes_on(
    hosts, config, alone, tmp_path
):
    run = tmp_path / "run"
    words = ["-m", "fedlama", "run", str(config), "--out", str(run)]

    programs = hosts.torchrun(*words, folder=tmp_path, numbered=True, silence=SILENCE)
    wait_for(lambda: rounds_of(run) >= ENOUGH_ROUNDS, "the run", tmp_path)
    hosts.cut()
    wait_for(
        lambda: said(tmp_path, 0) and said(tmp_path, 1),
        "the end of the run on both hosts",
        tmp_path,
    )
    assert "host 1 (" in said(tmp_path, 0)
    assert (
        f"has not been heard of for {SILENCE} seconds: it or its network is down"
        in said(tmp_path, 0)
    )
    assert (
        f"{hosts.addresses[0]}, where the hosts meet, has not answered for {SILENCE} seconds"
        in said(tmp_path, 1)
    )
    assert programs[0].wait(timeout=SECONDS) == 1, logs(tmp_path)
    assert not (run / "summary.json").exists()
    kept = timings_until_the_checkpoint(run)
    assert kept
    # Torchrun of the host that was cut off may still look for the other
    hosts.end_everything()

    hosts.mend()
    again = tmp_path / "again"
    again.mkdir()
    finish(hosts.torchrun(*words, "--resume", folder=again, numbered=True), again)
    assert contents(run) == alone
    # When each round was done differs from run to run, so these rounds were not done again
    assert (run / "timings.jsonl").read_text().splitlines()[: len(kept)] == kept


def rounds_of(run: Path) -> int:
    path = run / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def timings_until_the_checkpoint(run: Path) -> list[str]:
    rounds = [
        json.loads(path.read_text())["round"]
        for path in (run / "checkpoint").glob("step-*.json")
    ]
    return (run / "timings.jsonl").read_text().splitlines()[: max(rounds)]


def said(folder: Path, host: int) -> str:
    """What fedlama said last on a host; torchrun says much more."""
    lines = (folder / f"host{host}.log").read_text(errors="replace").splitlines()
    ours = [line for line in lines if line.startswith("fedlama: ")]
    return ours[-1] if ours else ""


# What one process knows of the others, without a network


class Memory:
    """A store in this process."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def set(self, key, value, /):
        self.kept[key] = value.encode()

    def check(self, keys, /):
        return all(key in self.kept for key in keys)

    def get(self, key, /):
        return self.kept[key]


def place(host: int, speaks: bool = True) -> HostPlace:
    return HostPlace(host=host, hosts=2, speaks=speaks, meeting_point="first-host")


def looks(watch: Watch, seconds: float) -> list[str | None]:
    return [watch.look() for _ in range(round(seconds / BEAT))]


def test_hosts_that_beat_are_not_lost():
    store, first, second = Memory(), Watch(place(0), 10), Watch(place(1), 10)
    for _ in range(5):
        first.exchange(store)
        second.exchange(store)
        assert looks(first, 9) == looks(second, 9) == [None] * round(9 / BEAT)


def test_a_host_that_falls_silent_is_named():
    store, first, second = Memory(), Watch(place(0), 10), Watch(place(1), 10)
    second.exchange(store)
    store.kept["host/1"] = b"1 second\n-host"
    first.exchange(store)
    assert looks(first, 10) == [None] * round(10 / BEAT)
    first.exchange(store)  # the store answers, and holds the beat of before
    problem = first.look()
    assert problem is not None
    assert problem.startswith("host 1 (second")
    assert "-host) has not been heard of for 10 seconds" in problem
    assert "\n" not in problem
    assert "--resume" in problem


def test_a_host_that_never_beat_is_lost_too():
    watch = Watch(place(0), 10)
    for _ in range(round(10 / BEAT)):
        watch.exchange(Memory())
        assert watch.look() is None
    watch.exchange(Memory())
    assert (watch.look() or "").startswith("host 1 has not been heard of")


def test_a_store_that_does_not_answer_is_named():
    watch = Watch(place(1), 10)
    assert looks(watch, 10) == [None] * round(10 / BEAT)
    assert (watch.look() or "").startswith(
        "first-host, where the hosts meet, has not answered for 10 seconds"
    )


def test_a_host_that_never_beat_is_not_blamed_for_the_store():
    watch = Watch(place(1), 10)
    # Before the first host has sent a beat, the store answers once; then the network is cut
    watch.look()
    watch.exchange(Memory())
    said_in_turn = looks(watch, 11)
    assert said_in_turn[:10] == [None] * 10
    assert (said_in_turn[10] or "").startswith("first-host, where the hosts meet")


def test_one_process_of_a_host_beats_for_all():
    store = Memory()
    Watch(place(1, speaks=False), 10).exchange(store)
    assert not store.kept


def test_the_place_is_what_torchrun_says():
    environment = {
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "3",
        "LOCAL_RANK": "2",
        "MASTER_ADDR": "a",
    }
    assert HostPlace.from_environment(environment) == HostPlace(
        1, 3, speaks=False, meeting_point="a"
    )
    assert HostPlace.from_environment({}).hosts == 1


def test_the_silence_allowed_is_a_number_of_seconds():
    assert silence_allowed({}) == 60
    assert silence_allowed({"FEDLAMA_SILENCE": "7.5"}) == 7.5
    for wrong in ("soon", "0", "-1", "nan", "inf", ""):
        with pytest.raises(InputError, match="FEDLAMA_SILENCE must be"):
            silence_allowed({"FEDLAMA_SILENCE": wrong})


@pytest.fixture
def alone_under_torchrun(monkeypatch):
    """A group of one process, as torchrun describes it."""
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(world, "_meeting_point", dist.HashStore)


GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.213.0.2]:41537"


@pytest.mark.parametrize(
    "error", [RuntimeError(GLOO), dist.DistNetworkError("Broken pipe")]
)
@pytest.mark.parametrize("collective", ["sum_", "max_"])
def test_a_connection_that_was_lost_becomes_a_sentence(
    alone_under_torchrun, monkeypatch, error, collective
):
    def lose(values, op=None):
        raise error

    monkeypatch.setattr(dist, "all_reduce", lose)
    with (
        pytest.raises(RunError, match=r"rank 0 of 1 lost its connection .* --resume"),
        world.torchrun_world("gloo") as alone,
    ):
        getattr(alone, collective)(torch.ones(1))
    assert not dist.is_initialized()


def test_an_error_of_a_collective_that_is_no_lost_connection_stays(
    alone_under_torchrun, monkeypatch
):
    def fail(values, op=None):
        raise RuntimeError("no backend for this device")

    monkeypatch.setattr(dist, "all_reduce", fail)
    with (
        pytest.raises(RuntimeError, match="no backend") as caught,
        world.torchrun_world("gloo") as alone,
    ):
        alone.sum_(torch.ones(1))
    assert caught.type is RuntimeError


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a shape that does not fit"),
        # Of a module of the user's
        RuntimeError("my gloo layer takes 3 channels"),
        RunError("gloo is not to blame"),
    ],
)
def test_other_errors_stay_what_they_are(alone_under_torchrun, error):
    with pytest.raises(RuntimeError) as caught, world.torchrun_world("gloo"):
        raise error
    assert caught.value is error
