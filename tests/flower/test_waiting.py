"""How long a Flower server waits for nodes, at the start and in a run."""

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flower.grid import MemoryGrid
from flower.test_strategy import CLIENTS, app, evaluate, network, strategy, train

from fedlama.flower import initial_arrays


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
    # No more than is left of `wait`, or five seconds.
    assert max(at_the_start) <= 5
    # The last client came in the first cycle, and was asked before the second.
    assert 5 < in_the_run <= 60


def test_a_run_begins_without_a_node_that_does_not_say_who_it_is():
    def misbehave(partition, message, reply):
        if message.metadata.message_type == "query" and partition == 1:
            return None
        return reply

    plan = strategy(clients=None, wait=1.0)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    train(grid, plan, iterations=2)
    assert {entry["client"] for entry in plan.records[0].excluded} == {1}
