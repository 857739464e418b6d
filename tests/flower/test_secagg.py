"""Secure aggregation: the server sees sums only, and takes the intervals that it would take if it saw every client."""

import importlib.util
import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from federation import Federation
from flwr.app import Context, RecordDict
from secure_app.client import app as client_app
from secure_app.server import app as server_app
from secure_app.task import BATCH, CLIENTS, PARTITION, POLICY, RATE, SEED, network

import fedlama
from fedlama.data import digits
from flower.grid import MemoryGrid

APP = Path(__file__).parents[2] / "examples" / "flower_secagg"
ROUNDS = 8  # four cycles


def simulated():
    return fedlama.simulate(
        network,
        digits(),
        policy=POLICY,
        local=fedlama.SGD(learning_rate=RATE, batch_size=BATCH),
        partition=PARTITION,
        iterations=ROUNDS * POLICY.base_interval,
        seed=SEED,
        execution="one-by-one",
    )


def assert_same_decisions(outcome):
    expected = simulated()
    assert outcome["intervals"] == [record.intervals for record in expected.records]
    assert outcome["aggregations"] == [layer.aggregations for layer in expected.layers]
    # There was something to decide
    assert len({tuple(intervals) for intervals in outcome["intervals"]}) > 1
    for name, values in expected.model.state_dict().items():
        # SecAgg+ rounds every number that it adds, at random and to 2e-6. Now and then that switches a unit on or off
        # and moves its weights by 1e-3, so what counts is the distance of all of them: 1e-5 of the norm as a rule.
        got = torch.tensor(outcome["model"][name])
        distance = torch.linalg.vector_norm(got - values)
        assert distance < 0.002 * torch.linalg.vector_norm(values)
    assert outcome["accuracy"] == pytest.approx(expected.accuracy, abs=0.01)


class SecureGrid(MemoryGrid):
    """The messages of Flower's older interface; all that the server is sent is kept."""

    run = SimpleNamespace(run_id=1)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.received = []

    def send_and_receive(self, messages, *, timeout=None):
        replies = list(self.pull_messages(self.push_messages(messages)))
        self.received += replies
        return replies


def test_the_server_sees_sums_only_and_takes_the_same_intervals(tmp_path):
    path = tmp_path / "outcome.json"
    grid = SecureGrid(client_app, range(CLIENTS))
    context = Context(
        run_id=1,
        node_id=1,
        node_config={},
        state=RecordDict(),
        run_config={"rounds": ROUNDS, "save-to": str(path)},
    )
    server_app(grid, context)
    assert_same_decisions(json.loads(path.read_text()))

    masked = []
    for reply in grid.received:
        assert not reply.has_error()
        # No array travels in the clear, and no metric that could tell a client.
        assert sum(len(record) for record in reply.content.array_records.values()) == 0
        assert (
            sum(
                len(record)
                for name, record in reply.content.metric_records.items()
                if "metrics" in name
            )
            == 0
        )
        for record in reply.content.config_records.values():
            masked += list(record.get("masked_params", []))
    # Its weight, differences and squared norms
    assert len(masked) == ROUNDS * CLIENTS * 3
    for content in masked[1::3]:
        assert_spread_over_the_whole_range(numbers_in(content), apart=0.06)
    # A message has one squared norm per due layer, so all of them together.
    squares = np.concatenate([numbers_in(content) for content in masked[2::3]])
    assert len(squares) >= ROUNDS * CLIENTS
    assert_spread_over_the_whole_range(squares, apart=0.12)


def numbers_in(content):
    return np.load(io.BytesIO(content), allow_pickle=False).astype(float)


def assert_spread_over_the_whole_range(numbers, *, apart):
    """A number fills a thousandth of the range; a masked one lies anywhere in it, as likely as anywhere else."""
    assert numbers.mean() / 2**32 == pytest.approx(0.5, abs=apart)
    assert numbers.std() / 2**32 == pytest.approx(12**-0.5, abs=apart)


@pytest.mark.slow
def test_it_runs_in_flowers_simulation(tmp_path):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("flwr[simulation] is not installed")
    path = tmp_path / "outcome.json"
    with Federation(
        tmp_path / "federation", simulated=CLIENTS, seconds=600.0
    ) as federation:
        run = federation.run(APP, save_to=str(path), rounds=ROUNDS)
        federation.wait_for(run, path)
    assert not federation.descendants()
    assert_same_decisions(json.loads(path.read_text()))
