"""How long a Flower server waits for nodes, at the start and in a run."""

import threading
import time

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.app import RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fedlama
from fedlama.compress import Rotate
from fedlama.flower import exchange as exchanging
from fedlama.flower import initial_arrays, layerwise
from fedlama.flower import nodes as asking
from fedlama.flower.questions import Questions
from fedlama.flower.votes import Votes
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


@pytest.fixture
def quick_questions(monkeypatch):
    monkeypatch.setattr(asking, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(asking, "MIN_ASK_SECONDS", 0.2)
    monkeypatch.setattr(asking, "ASK_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(asking, "REFRESH_SECONDS", 0.1)


class Silent:
    """A grid on which nobody answers."""

    def push_messages(self, messages):
        return [f"message-{number}" for number, _ in enumerate(messages)]

    def pull_messages(self, message_ids):
        return []


def test_a_question_that_is_put_again_is_late_only_when_the_last_one_is():
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    questions = Questions(Silent(), RecordDict())
    questions.ask(7, seconds=0.05)
    questions.ask(7, seconds=60)
    time.sleep(0.1)
    assert questions.close_late() == []
    assert questions.is_open(7)
    questions.ask(8, seconds=0.05)
    time.sleep(0.1)
    assert questions.close_late() == [8]


def test_nodes_that_do_not_know_how_many_clients_there_are_have_no_vote():
    votes = Votes()
    for node, clients in ((1, 0), (2, 0), (3, 5), (4, 9), (5, 9), (6, 9)):
        votes.note(node, clients)
    assert votes.winner([1, 2, 3]) == 5
    assert votes.winner([1, 2]) is None
    # Of a tie the smaller number, and of those that left nothing counts.
    assert votes.winner([3, 4]) == 5
    assert votes.winner([3, 4, 5]) == 9
    assert votes.voters(9) == [4, 5, 6]


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


def test_a_run_begins_without_a_node_that_does_not_say_who_it_is(quick_questions):
    def misbehave(partition, message, reply):
        if message.metadata.message_type == "query" and partition == 1:
            return None
        return reply

    plan = strategy(clients=None, wait=1.0)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    train(grid, plan, iterations=2)
    assert {entry["client"] for entry in plan.records[0].excluded} == {1}


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_a_node_that_does_not_answer_is_asked_again_and_again_before_the_run_begins(
    quick_questions, lost
):
    """Its program may have been started anew after it had fetched the question."""
    asked = []

    def misbehave(partition, message, reply):
        if message.metadata.message_type == "query" and partition == 1:
            asked.append(partition)
            if len(asked) <= lost:
                return None
        return reply

    # A deadline later would be too late.
    plan = strategy(clients=None, wait=30.0, deadline=600.0)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    train(grid, plan, iterations=2)
    assert plan.records[0].excluded == []


class HeldUp(MemoryGrid):
    """Client 1 hangs in a message of which a killed ServerApp had sent a part only. Then it answers its first question.

    Flower drops those that are no longer valid by then.
    """

    questions = 0
    first = ""

    def push_messages(self, messages):
        numbers = super().push_messages(messages)
        for message, number in zip(messages, numbers, strict=True):
            metadata = message.metadata
            if metadata.message_type == "query" and metadata.dst_node_id == 1000 - 7:
                self.questions += 1
                answer = self.replies.pop(number)
                if self.questions == 1:
                    self.first = number
                    self.answer = answer
        return numbers

    def pull_messages(self, numbers):
        if self.first in numbers and self.questions > 1:
            self.replies[self.first] = self.answer
        return super().pull_messages(numbers)


def test_a_node_that_was_held_up_by_another_run_is_waited_for_before_the_run_begins(
    quick_questions,
):
    plan = strategy(clients=None, wait=30.0, deadline=600.0)
    grid = HeldUp(app(), range(CLIENTS))
    train(grid, plan, iterations=2)
    assert plan.records[0].excluded == []
    # To have been asked twice is no reason to be trained twice.
    trained = [partition for partition, kind, *_ in grid.sent if kind == "train"]
    assert sorted(trained) == list(range(CLIENTS))


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


def test_who_failed_inside_a_window_gets_the_whole_model_whatever_its_state_says():
    """It failed before it kept anything: its state is of the round before, which a broadcast does not go on from."""
    tasks = {}

    def listen(partition, message, reply):
        if message.metadata.message_type == "train":
            task = task_of(message)
            tasks.setdefault(task["step"], {})[partition] = task
        return reply

    def fails_once(module, steps, context):
        if context.node_config["partition-id"] == 1 and steps.start == 2:
            raise RuntimeError("out of memory")
        return 0.5

    # Two cycles of two rounds in one window
    policy = fedlama.Fixed(2, {"1.weight": 4})
    plan = strategy(policy, clients=None, window=8, downlink=Rotate(4.0))
    grid = MemoryGrid(layerwise(network)(fails_once), range(CLIENTS), misbehave=listen)
    train(grid, plan, iterations=8)
    absent = [[entry["client"] for entry in record.excluded] for record in plan.records]
    assert absent == [[], [1], [], []]
    for client, task in tasks[4].items():
        assert bool(task["expects"]) == (client != 1)


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


def test_a_client_that_was_silent_twice_is_sent_nothing_when_the_next_cycle_begins():
    asked = []  # by the step before the round: who was sent a task

    def misbehave(partition, message, reply):
        if message.metadata.message_type != "train":
            return reply
        step = task_of(message)["step"]
        asked.append((step, partition))
        if partition == 1 and step < 4:
            return None
        return reply

    # Every round is a cycle, so that it is back after the first time, and left alone for a deadline after the second.
    plan = strategy(fedlama.FedAvg(2), clients=None, deadline=3.0)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    train(grid, plan, iterations=6)
    others = [0, 2, 3, 4]
    assert sorted(asked) == [
        *[(0, client) for client in range(CLIENTS)],
        *[(2, client) for client in range(CLIENTS)],
        *[(4, client) for client in others],
    ]
    reasons = [
        [(entry["client"], entry["reason"]) for entry in record.excluded]
        for record in plan.records
    ]
    assert reasons == [
        [(1, "missed the deadline")],
        [(1, "missed the deadline")],
        [(1, "failed before the cycle")],
    ]


class KilledWhileItUploads(MemoryGrid):
    """Client 1's first reply is announced and never becomes whole, and its node is away for a while.

    `away` are the calls after that at which the node is not among those that are there; afterwards it is back.
    """

    def __init__(self, *arguments, away, returns_as, **options):
        super().__init__(*arguments, **options)
        self.away = away
        self.returns_as = returns_as  # what is added to its id
        self.half = None
        self.looks = 0  # since then
        self.ended = threading.Event()

    def get_node_ids(self):
        there = super().get_node_ids()
        if self.half is None:
            return there
        self.looks += 1
        if self.looks in self.away:
            return [node for node in there if node != self.node]
        if self.looks > max(self.away) and self.node in self.contexts:
            context = self.contexts.pop(self.node)
            self.contexts[self.node + self.returns_as] = context
        return super().get_node_ids()

    @property
    def node(self):
        return 1000 - 7

    def push_messages(self, messages):
        numbers = super().push_messages(messages)
        for message, number in zip(messages, numbers, strict=True):
            metadata = message.metadata
            if metadata.message_type == "train" and metadata.dst_node_id == self.node:
                self.half = self.half or number
        return numbers

    def pull_messages(self, numbers):
        if self.half in numbers:
            self.ended.wait(60)
            return []
        return super().pull_messages(numbers)


@pytest.mark.parametrize("returns_as", [0, 1], ids=["same id", "another id"])
@pytest.mark.parametrize(
    ("look", "away", "absent"),
    [
        # Seen to leave while the others wait for its reply: it is back in the next cycle.
        (0.2, {2, 3}, [[1], [], []]),
        # Seen to be away when the next cycle begins: it is back in the one after.
        (100.0, {1}, [[1], [1], []]),
    ],
)
def test_a_node_that_was_killed_while_it_uploads_is_no_longer_waited_for_once_it_left(
    monkeypatch, look, away, absent, returns_as
):
    monkeypatch.setattr(exchanging, "LOOK_SECONDS", look)
    entering = {}  # by the step before the round: who was not expected to have a state

    def listen(partition, message, reply):
        if message.metadata.message_type == "train":
            task = task_of(message)
            entered = entering.setdefault(task["step"], set())
            if not task["expects"]:
                entered.add(partition)
        return reply

    # Every round is a cycle, all in one window; those after the first take less than a deadline together.
    plan = strategy(fedlama.FedAvg(2), clients=None, window=6, deadline=4.0)
    grid = KilledWhileItUploads(
        app(), range(CLIENTS), misbehave=listen, away=away, returns_as=returns_as
    )
    try:
        train(grid, plan, iterations=6)
    finally:
        grid.ended.set()
    excluded = [
        [entry["client"] for entry in record.excluded] for record in plan.records
    ]
    assert excluded == absent
    # And it begins as one that enters: what it kept is of a round that did not count for it.
    everyone = set(range(CLIENTS))
    back = 2 * absent.index([])
    assert entering == {0: everyone, 2: set(), 4: set(), back: {1}}


def test_a_reply_that_never_becomes_whole_keeps_its_node_busy_for_one_deadline_more():
    """A node that is killed while it uploads, and not seen to leave: Flower goes on waiting for what it announced."""
    killed = threading.Event()

    class Grid:
        """Its one node announces a reply, is killed, and back before anyone sees that it left."""

        def get_node_ids(self):
            return [7]

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
