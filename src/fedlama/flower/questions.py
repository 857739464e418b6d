"""Questions who a node is. Each stays open until it is answered, because a node may be held up.

A SuperNode takes one message after the other. Where a ServerApp was killed while it sent one, the SuperNode waits for
the rest of it until Flower has noticed, a minute or longer. Only then does it come to what it was asked meanwhile.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Collection
from dataclasses import dataclass

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedlama.flower.pulling import Request, send_and_pull


@dataclass(kw_only=True, eq=False)
class _Question:
    """What a node was asked, perhaps more than once. Times are on the monotonic clock."""

    node: int
    begun: float  # when it was asked first
    asked: float  # when it was asked last
    end: float  # an answer is late from then on


class Questions:
    """The questions that are open.

    Arguments:
        grid: Flower's.
        content: The question, the same for all nodes.
    """

    def __init__(self, grid: Grid, content: RecordDict) -> None:
        self.grid = grid
        self.content = content
        self._open: dict[int, _Question] = {}  # by node
        self._arrived: queue.Queue[tuple[_Question, Message]] = queue.Queue()
        # By node, on the monotonic clock: who did not say who it is, is not asked again at once.
        self._not_before: dict[int, float] = {}

    def leave_alone(self, node: int, *, seconds: float) -> None:
        """Do not ask a node again for so long.

        Arguments:
            node: Flower's id of it.
            seconds: For how long.
        """
        self._not_before[node] = time.monotonic() + seconds

    def allow(self, node: int) -> None:
        """Let a node be asked again at once.

        Arguments:
            node: Flower's id of it.
        """
        self._not_before.pop(node, None)

    def may_be_asked(self, node: int) -> bool:
        """Whether a node is not to be left alone.

        Arguments:
            node: Flower's id of it.
        """
        return time.monotonic() >= self._not_before.get(node, 0.0)

    def ask(self, node: int, *, seconds: float) -> None:
        """Ask a node; if it has not answered an earlier question, either answer will do.

        Arguments:
            node: Flower's id of it.
            seconds: For how long an answer counts.
        """
        now = time.monotonic()
        question = self._open.get(node)
        if question is None:
            question = _Question(node=node, begun=now, asked=now, end=now + seconds)
            self._open[node] = question
        question.asked = now
        question.end = max(question.end, now + seconds)

        def put(reply: Message, question: _Question = question) -> None:
            self._arrived.put((question, reply))

        request = Request(node, self.content)
        thread = send_and_pull(
            self.grid,
            request,
            MessageType.QUERY,
            end=now + seconds,
            put=put,
        )
        if thread is None and question.begun == now:
            del self._open[node]

    @property
    def are_open(self) -> bool:
        """Whether anyone may still answer."""
        return bool(self._open)

    def is_open(self, node: int) -> bool:
        """Whether a node was asked and may still answer.

        Arguments:
            node: Flower's id of it.
        """
        return node in self._open

    def was_asked_within(self, seconds: float, node: int) -> bool:
        """Whether a node has an open question that was asked no longer ago than this.

        Arguments:
            seconds: How long ago.
            node: Flower's id of it.
        """
        question = self._open.get(node)
        return question is not None and time.monotonic() < question.asked + seconds

    def asked_within(self, seconds: float) -> bool:
        """Whether any open question was first asked no longer ago than this.

        Arguments:
            seconds: How long ago.
        """
        now = time.monotonic()
        return any(now < question.begun + seconds for question in self._open.values())

    def answers(self, nodes: Collection[int], seconds: float) -> dict[int, Message]:
        """All answers that have arrived, by node.

        Arguments:
            nodes: Whose answers to wait for.
            seconds: For how long.
        """
        end = time.monotonic() + seconds
        found: dict[int, Message] = {}
        while True:
            wanted = {node for node in nodes if node in self._open}
            left = end - time.monotonic()
            try:
                if wanted and left > 0:
                    question, reply = self._arrived.get(timeout=left)
                else:
                    question, reply = self._arrived.get_nowait()
            except queue.Empty:
                return found
            # A node that left since, or has answered an earlier question, is not believed a second time.
            if self._open.get(question.node) is question:
                del self._open[question.node]
                found[question.node] = reply

    def close_late(self) -> list[int]:
        """Close the questions to which no answer counts any more; whom they were put to."""
        now = time.monotonic()
        late = [node for node, question in self._open.items() if now >= question.end]
        for node in late:
            del self._open[node]
        return late

    def forget_all_but(self, there: Collection[int]) -> None:
        """Close the questions to nodes that left: what one says when it is back may be something else.

        Arguments:
            there: Flower's ids of all nodes that are connected.
        """
        for node in set(self._open) - set(there):
            del self._open[node]
