"""Flower's grid as a strategy needs it: who is there, and messages with a deadline that is kept.

`Grid.send_and_receive` does not keep its timeout: pulling a reply waits for objects that a dead node announced, for up
to two hours. So each reply is pulled in a thread of its own, and nobody waits for one that is late.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import DEBUG

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

from fedlama.base import InputError, RunError
from fedlama.flower.wire import RECORD

POLL_SECONDS = 0.2
MAX_POLL_SECONDS = 2.0
ASK_AGAIN_SECONDS = 5.0  # after an answer that could not be used: the node may just have started

FollowUp = Callable[[int, Message], RecordDict | None]


@dataclass(frozen=True)
class Member:
    """A node that told who it is: `client` is its partition id."""

    node: int
    client: int
    samples: int


class Nodes:
    """The nodes of a run, by the number of the client that each is.

    Arguments:
        grid: Flower's.
        seed: The run's; clients are asked for the size of a shard that may be drawn from it.
        deadline: Seconds after which a reply is late.
    """

    def __init__(self, grid: Grid, *, seed: int, deadline: float) -> None:
        self.grid = grid
        self.seed = seed
        self.deadline = deadline
        self.members: dict[int, Member] = {}  # by client
        self.samples: dict[int, int] = {}  # by client, also of those that left
        self.population = 0
        self._strangers: dict[int, float] = {}  # nodes that did not say who they are, and when they were asked
        self._pulling: dict[int, threading.Thread] = {}  # by node: messages that are still awaited

    def refresh(self) -> None:
        """Ask nodes that came who they are, and forget those that left."""
        there = set(self.grid.get_node_ids())
        self.members = {client: one for client, one in self.members.items() if one.node in there}
        known = {one.node for one in self.members.values()}
        now = time.monotonic()
        new: list[int] = []
        for node in sorted(there - known):
            # One that did not answer is not asked again at once: every question may cost the deadline.
            if now >= self._strangers.get(node, 0.0) and not self.is_busy(node):
                new.append(node)
        question = RecordDict({RECORD: ConfigRecord({"seed": str(self.seed)})})
        answers = self._exchange({node: (node, question) for node in new}, MessageType.QUERY, None)
        for node in new:
            member = self._member(node, answers.get(node))
            if member is None:
                pause = self.deadline if node not in answers else ASK_AGAIN_SECONDS
                self._strangers[node] = time.monotonic() + pause
            else:
                self.members[member.client] = member
                self.samples[member.client] = member.samples

    def wait_for(self, least: int, seconds: float) -> None:
        """Wait until so many clients are there, or all of them where `least` is 0; for at most so many seconds."""
        end = time.monotonic() + seconds
        while True:
            self.refresh()
            wanted = least or self.population
            if wanted and len(self.members) >= wanted:
                return
            if time.monotonic() >= end:
                return
            time.sleep(1)

    def is_busy(self, node: int) -> bool:
        """Whether a reply of this node is still awaited, after its deadline."""
        thread = self._pulling.get(node)
        return thread is not None and thread.is_alive()

    def present(self, clients: Iterable[int]) -> list[int]:
        """Those of these clients that can be sent a message."""
        found: list[int] = []
        for client in clients:
            member = self.members.get(client)
            if member is not None and not self.is_busy(member.node):
                found.append(client)
        return found

    def train(self, contents: Mapping[int, RecordDict], follow_up: FollowUp) -> dict[int, Message]:
        """Send each client its content; the replies that came before the deadline.

        Arguments:
            contents: What to send, by client.
            follow_up: Asked about each reply: what to send to this client at once in answer, or None.
        """
        addressed = {client: (self.members[client].node, content) for client, content in contents.items()}
        return self._exchange(addressed, MessageType.TRAIN, follow_up)

    def _exchange(
        self, addressed: Mapping[int, tuple[int, RecordDict]], kind: str, follow_up: FollowUp | None
    ) -> dict[int, Message]:
        end = time.monotonic() + self.deadline
        arrived: queue.Queue[tuple[int, Message]] = queue.Queue()
        waiting: set[int] = set()
        for name, (node, content) in addressed.items():
            if self._send(name, node, content, kind, end, arrived):
                waiting.add(name)
        replies: dict[int, Message] = {}
        while waiting:
            try:
                name, reply = arrived.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            again = None
            if follow_up is not None:
                again = follow_up(name, reply)
            if again is not None and self._send(name, addressed[name][0], again, kind, end, arrived):
                continue
            waiting.discard(name)
            replies[name] = reply
        return replies

    def _send(
        self,
        name: int,
        node: int,
        content: RecordDict,
        kind: str,
        end: float,
        arrived: queue.Queue[tuple[int, Message]],
    ) -> bool:
        """Push one message and let a thread wait for its reply; False if it could not be pushed."""
        left = end - time.monotonic()
        if left <= 0:
            return False
        # One at a time: Flower limits what is pushed at once.
        (number,) = list(self.grid.push_messages([Message(content, node, kind, ttl=left)])) or [None]
        if not number:
            return False

        def pull() -> None:
            pause = POLL_SECONDS
            while time.monotonic() < end:
                try:
                    for reply in self.grid.pull_messages([number]):
                        arrived.put((name, reply))
                        return
                except Exception:
                    # Whatever a client makes of its reply, this client alone is late.
                    log(DEBUG, "pulling the reply of node %s failed", node, exc_info=True)
                time.sleep(max(0.0, min(pause, end - time.monotonic())))
                pause = min(MAX_POLL_SECONDS, pause * 1.2)

        thread = threading.Thread(target=pull, daemon=True, name=f"fedlama-{node}")
        self._pulling[node] = thread
        thread.start()
        return True

    def _member(self, node: int, reply: Message | None) -> Member | None:
        """Who a node says it is; None where it says nothing that can be used."""
        if reply is None or reply.has_error():
            return None
        told = reply.content.config_records.get(RECORD, {})
        values = [told.get("client"), told.get("clients"), told.get("samples")]
        if not all(type(one) is int and one >= 0 for one in values):
            return None
        client, clients, samples = (int(str(one)) for one in values)
        if samples < 1:
            return None
        known = self.members.get(client)
        if known is not None and known.node != node:
            return None  # two nodes with one partition id: the first stays
        if self.population and clients != self.population:
            return None
        if clients and client >= clients:
            return None
        self.population = self.population or clients
        return Member(node, client, samples)


def population_of(nodes: Nodes) -> int:
    """How many clients there are, or a sentence on what is missing."""
    if not nodes.members:
        raise RunError(
            f"no node said within {nodes.deadline:g} seconds which client it is: start SuperNodes with "
            f"--node-config 'partition-id=0 num-partitions=4' and the client app of fedlama.flower"
        )
    if not nodes.population:
        raise InputError("the nodes have no num-partitions in their configuration: start them with --node-config")
    return nodes.population
