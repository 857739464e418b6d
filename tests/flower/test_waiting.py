"""How long a Flower server waits for nodes, at the start and in a run."""

import threading
import time

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.app import RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fedlama
from fedlama.flower import exchange as exchanging
from fedlama.flower import initial_arrays
from flower.grid import MemoryGrid
from flower.test_strategy import (
    CLIENTS,
    app,
    evaluate,
    network,
    strategy,
    task_of,
    train,
)


def test_a_question_who_a_node_is_has_its_own_deadline():
    # Of every question, in the order in which they were asked; Flower drops a message after it.
    times_to_live = []

    def listen(partition, message, reply):
        if message.metadata.message_type == "query":
            times_to_live.append(message.metadata.ttl)
        return reply

    def evaluate_and_change(round_, arrays):
        grid.join(CLIENTS - 1, CLIENTS)
        return evaluate(round_, arrays)

    grid = MemoryGrid(app(), range(CLIENTS - 1), population=CLIENTS, misbehave=listen)
    plan = strategy(clients=None, wait=1.0, deadline=600.0, evaluate_every=1)
    plan.start(
        grid,
        initial_arrays(network, 0),
        iterations=16,
        evaluate_fn=evaluate_and_change,
    )
    *at_the_start, in_the_run = times_to_live
    assert len(at_the_start) == CLIENTS - 1
    # No more than is left of `wait`, or thirty seconds.
    assert max(at_the_start) <= 30
    # The last client came in the first cycle, and was asked before the second.
    assert 30 < in_the_run <= 60


def test_a_run_begins_without_a_node_that_does_not_say_who_it_is():
    def misbehave(partition, message, reply):
        if message.metadata.message_type == "query" and partition == 1:
            return None
        return reply

    plan = strategy(clients=None, wait=1.0)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    train(grid, plan, iterations=2)
    assert {entry["client"] for entry in plan.records[0].excluded} == {1}


def test_who_is_back_inside_a_window_gets_the_whole_model_and_the_others_what_is_due():
    # By the step before the round: what each client was sent, and whether it was expected to have a state.
    tasks = {}

    def listen(partition, message, reply):
        if message.metadata.message_type == "train":
            task = task_of(message)
            tasks.setdefault(task["step"], {})[partition] = task
        return reply

    def evaluate_and_change(round_, arrays):
        if round_ == 2:
            grid.join(CLIENTS - 1, CLIENTS)
        return evaluate(round_, arrays)

    grid = MemoryGrid(app(), range(CLIENTS - 1), population=CLIENTS, misbehave=listen)
    # Two cycles of two rounds in one window: after the first round of each, the weights of the first layer are not due.
    policy = fedlama.Fixed(2, {"1.weight": 4})
    plan = strategy(policy, clients=None, window=8, wait=1.0, evaluate_every=1)
    plan.start(
        grid,
        initial_arrays(network, 0),
        iterations=8,
        evaluate_fn=evaluate_and_change,
    )
    returned = CLIENTS - 1
    everything = list(range(6))
    due = everything[1:]
    assert [sorted(tasks[step]) for step in (0, 2)] == [list(range(returned))] * 2
    assert [sorted(tasks[step]) for step in (4, 6)] == [list(range(CLIENTS))] * 2
    for client, task in tasks[4].items():
        # It is sent all layers because it has none, the others because a cycle has just ended.
        assert bool(task["expects"]) == (client != returned)
        assert task["sent"] == everything
    for task in (*tasks[2].values(), *tasks[6].values()):
        assert task["expects"]
        assert task["sent"] == due

    # The whole model at the start, and to everyone at the second cycle's start; otherwise what was due.
    numbers = 64 * 12 + 12 + 2 * 12 + 12 * 10 + 10
    statistics = 2 * 12
    whole = 4 * (numbers + statistics)
    part = whole - 4 * 64 * 12
    downlink = [record.downlink_bytes for record in plan.records]
    assert downlink == [4 * whole, 4 * part, 5 * whole, 5 * part]


def test_a_node_that_stays_silent_is_left_alone_for_longer_and_longer(monkeypatch):
    """Late once, it may be back at once; then it is not addressed for 1, 2, 4 and at most 8 deadlines."""
    now = [100.0]
    monkeypatch.setattr(exchanging.time, "monotonic", lambda: now[0])
    exchange = exchanging.NodeExchange(grid=None, deadline=10.0)
    pauses = []
    for _ in range(6):
        exchange._note_late(7)
        began = now[0]
        while exchange.is_busy(7):
            now[0] += 1.0
        pauses.append(now[0] - began)
    assert pauses == [0.0, 10.0, 20.0, 40.0, 80.0, 80.0]
    assert not exchange.is_busy(8)


def test_a_reply_that_never_becomes_whole_keeps_its_node_busy_for_one_deadline_more():
    """A node that is killed while it uploads: Flower goes on waiting for what it announced."""
    killed = threading.Event()

    class Grid:
        """Its one node announces a reply, and is gone."""

        def push_messages(self, messages):
            return ["message" for _ in messages]

        def pull_messages(self, numbers):
            killed.wait(60)
            return []

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    exchange = exchanging.NodeExchange(Grid(), deadline=1.0)
    request = exchanging.Request(7, RecordDict())
    began = time.monotonic()
    assert exchange.ask({0: request}, "train") == {}
    try:
        assert exchange.is_busy(7)
        while exchange.is_busy(7):
            assert time.monotonic() < began + 30
            time.sleep(0.05)
        assert time.monotonic() >= began + 2
        assert exchange._pulling[7].thread.is_alive()
    finally:
        killed.set()
