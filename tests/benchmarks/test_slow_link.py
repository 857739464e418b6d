"""The slow link: what is read from a run, what the replay predicts from it, and what is said where it cannot run."""

import json
import sys

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from benchmarks.slow_link import __main__ as slow_link
from benchmarks.slow_link import links
from benchmarks.slow_link.__main__ import APP, Run, predict, read
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

import fedlama
from fedlama.flower import LayerwiseStrategy, initial_arrays
from flower.grid import MemoryGrid


def a_run(rate, megabytes, seconds):
    """Ten rounds in which each client moves so many megabytes each way, in so many seconds each."""
    moved = 10 * megabytes * 1e6
    return Run(
        rate=rate,
        setting="fedlama",
        rounds=10,
        seconds=10 * seconds,
        up=moved,
        down=moved,
        ledger_up=moved,
        ledger_down=moved,
        target_rounds=5,
        target_seconds=5 * seconds,
    )


def test_the_smallest_run_tells_the_overhead_and_the_others_are_predicted():
    # 1.25 MB each way take 2 s at 10 Mbit/s, so 10 s are left of a round of 12.
    small = a_run(10e6, 1.25, 12.0)
    large = a_run(10e6, 25.0, 55.0)
    slow = a_run(2e6, 25.0, 200.0)
    assert predict([large, small, slow]) == pytest.approx(10.0)
    assert small.predicted == pytest.approx(120.0)
    assert large.predicted == pytest.approx(10 * (10 + 40))
    assert slow.predicted == pytest.approx(10 * (10 + 200))
    assert slow.predicted_target == pytest.approx(5 * (10 + 200))


def test_a_run_is_read_from_its_folder_and_the_counters(tmp_path):
    records = [
        {"round": 1, "accuracy": 0.5},
        {"round": 2, "accuracy": None},
        {"round": 3, "accuracy": 0.9},
    ]
    timings = [{"round": number, "seconds": 10.0 * number} for number in (1, 2, 3)]
    (tmp_path / "rounds.jsonl").write_text(
        "\n".join(json.dumps(record) for record in records)
    )
    (tmp_path / "timings.jsonl").write_text(
        "\n".join(json.dumps(timing) for timing in timings)
    )
    (tmp_path / "summary.json").write_text(
        json.dumps({"uplink_bytes": 600, "downlink_bytes": 800})
    )
    run = read(tmp_path, "fedlama", 1e6, (100, 200), (900, 1200), target=0.8)
    assert (run.rounds, run.seconds) == (3, 30.0)
    assert (run.up, run.down) == (400, 500)
    assert (run.ledger_up, run.ledger_down) == (300, 400)
    assert (run.target_rounds, run.target_seconds) == (3, 30.0)


def test_it_says_what_is_missing_and_stops(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["slow_link"])
    monkeypatch.setattr(links.shutil, "which", lambda program: None)
    with pytest.raises(
        SystemExit, match=r"slow_link cannot run here: ip is not installed"
    ):
        slow_link.main()
    monkeypatch.setattr(links.shutil, "which", lambda program: f"/sbin/{program}")
    monkeypatch.setattr(links.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="network namespaces need root"):
        slow_link.main()


@pytest.fixture
def slow_app(monkeypatch):
    """The modules of the app that the links carry."""
    monkeypatch.syspath_prepend(str(APP))
    from slow_app import client, task

    yield client, task
    for name in [name for name in sys.modules if name.startswith("slow_app")]:
        del sys.modules[name]


def test_its_clients_train_for_both_strategies(slow_app):
    client, task = slow_app
    grid = MemoryGrid(client.app, range(task.CLIENTS))
    strategy = LayerwiseStrategy(fedlama.FedAvg(1), seed=task.SEED)
    first = initial_arrays(task.network, task.SEED)
    strategy.start(grid, first, iterations=1)
    assert [record.excluded for record in strategy.records] == [[]]

    # A round as Flower's own FedAvg asks for it
    content = RecordDict(
        {
            "arrays": ArrayRecord(task.network().state_dict()),
            "config": ConfigRecord({"server-round": 1}),
        }
    )
    asked = Message(content, dst_node_id=1, message_type="train")
    reply = client.app(asked, grid.context(0))
    assert set(reply.content["arrays"]) == set(first)
    assert reply.content["metrics"]["num-examples"] > 0
