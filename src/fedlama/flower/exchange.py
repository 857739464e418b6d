"""Messages with a deadline that is kept: nobody waits for a reply that is late, or for one that never becomes whole."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from logging import DEBUG

from flwr.app import Message, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

from fedlama.flower.pulling import POLL_SECONDS, Request, send_and_pull

LOOK_SECONDS = 1.0  # a program that is started anew is mostly away for longer
MAX_PAUSES = 8  # deadlines for which a node that stays silent is left alone

# Asked about each reply: what to send to this addressee at once in answer, or None
FollowUp = Callable[[int, Message], RecordDict | None]


@dataclass(frozen=True)
class _Awaited:
    """Where the replies of one exchange go, and until when they count."""

    kind: str
    end: float  # on the monotonic clock
    arrived: queue.Queue[tuple[int, Message]]

    @property
    def seconds_left(self) -> float:
        left = self.end - time.monotonic()
        return max(0.0, left)


@dataclass(frozen=True)
class _Pulling:
    """The thread that waits for a node's reply."""

    thread: threading.Thread
    given_up: (
        float  # on the monotonic clock: a reply that is not there by then will never be
    )

    def is_on(self, now: float) -> bool:
        """Whether the reply may still come.

        Arguments:
            now: On the monotonic clock.
        """
        # A node that was killed while it sent a reply, and was back before anyone saw that it left, has forgotten it.
        # Flower waits for the rest of it all the same, for an hour or longer, and the thread with it.
        return self.thread.is_alive() and now < self.given_up


@dataclass(frozen=True)
class _Late:
    """A node whose latest replies did not come before their deadlines."""

    times: int  # in a row
    not_before: float  # on the monotonic clock: when it is worth a message again


class NodeExchange:
    """Sends messages to nodes and waits for their replies, never longer than the deadline.

    Arguments:
        grid: Flower's.
        deadline: Seconds after which a reply is late.
    """

    def __init__(self, grid: Grid, *, deadline: float) -> None:
        self.grid = grid
        self.deadline = deadline
        self._pulling: dict[int, _Pulling] = {}  # by node
        self._late: dict[int, _Late] = {}  # by node, until its next reply

    def is_busy(self, node: int) -> bool:
        """Whether a node is not worth a message now: its reply is still being pulled, or it is late again and again.

        Arguments:
            node: Flower's id of it.
        """
        now = time.monotonic()
        pulling = self._pulling.get(node)
        if pulling is not None and pulling.is_on(now):
            return True
        late = self._late.get(node)
        return late is not None and now < late.not_before

    def note_who_is_there(self, there: Set[int]) -> None:
        """Forget what was wrong with nodes that left: whoever comes back begins anew.

        Arguments:
            there: Flower's ids of all nodes that are connected.
        """
        # The thread that waits for such a node's reply may go on. Where it has one after all, it puts it where nobody
        # looks any longer, or where its exchange still waits for it.
        for known in (self._pulling, self._late):
            for node in set(known) - there:
                del known[node]

    def ask(
        self,
        requests: Mapping[int, Request],
        kind: str,
        follow_up: FollowUp | None = None,
    ) -> dict[int, Message]:
        """Send all requests; the replies that came before the deadline, by the same keys.

        Arguments:
            requests: What to send, by a key of the caller's own.
            kind: Flower's type of the message.
            follow_up: Asked about each reply, by key: what to send to this node at once in answer, or None.
        """
        end = time.monotonic() + self.deadline
        awaited = _Awaited(kind, end, arrived=queue.Queue())
        waiting: set[int] = set()
        for key, request in requests.items():
            if self._send(key, request, awaited):
                waiting.add(key)

        replies: dict[int, Message] = {}
        left: set[int] = set()  # nodes that were away since
        next_look = time.monotonic() + LOOK_SECONDS
        while waiting:
            until_look = next_look - time.monotonic()
            if until_look <= 0:
                left |= self._away({requests[key].node for key in waiting})
                next_look = time.monotonic() + LOOK_SECONDS
                continue
            try:
                pause = min(until_look, awaited.seconds_left)
                key, reply = awaited.arrived.get(timeout=pause)
            except queue.Empty:
                if awaited.seconds_left:
                    continue
                break
            # The thread may still be about to end; its node is free all the same.
            node = requests[key].node
            self._pulling.pop(node, None)
            self._late.pop(node, None)

            answer = None
            if follow_up is not None:
                answer = follow_up(key, reply)
            if answer is not None:
                again = Request(node, answer)
                if self._send(key, again, awaited):
                    continue
            waiting.discard(key)
            replies[key] = reply
        for key in waiting:
            node = requests[key].node
            # What one that left says when it is back is not late.
            if node not in left:
                self._note_late(node)
        return replies

    def tell(
        self, requests: Sequence[Request], kind: str, *, seconds: float, ttl: float
    ) -> None:
        """Send requests whose replies are worth nothing, and wait for them no longer than so many seconds.

        Nothing is raised: the link may be the reason why nothing is left to be said but this.

        Arguments:
            requests: What to send; to nodes that left nothing is sent.
            kind: Flower's type of the message.
            seconds: For how long to wait.
            ttl: For how many seconds a node may still fetch its message, and begin with it.
        """
        if not requests:
            return
        end = time.monotonic() + seconds
        # A daemon, because every call of the grid may wait for a SuperLink that is no longer there.
        thread = threading.Thread(
            target=self._tell,
            args=(requests, kind, end, ttl),
            daemon=True,
            name="fedlama-tell",
        )
        thread.start()
        thread.join(seconds)

    def _tell(
        self, requests: Sequence[Request], kind: str, end: float, ttl: float
    ) -> None:
        try:
            there = set(self.grid.get_node_ids())
            waiting: set[str] = set()
            for request in requests:
                if request.node not in there:
                    continue
                message = Message(request.content, request.node, kind, ttl=ttl)
                for pushed in self.grid.push_messages([message]):
                    if pushed:
                        waiting.add(pushed)

            while waiting and time.monotonic() < end:
                for reply in self.grid.pull_messages(sorted(waiting)):
                    waiting.discard(reply.metadata.reply_to_message_id)
                if waiting:
                    time.sleep(POLL_SECONDS)
        except Exception:
            log(DEBUG, "a message to nodes could not be sent", exc_info=True)

    def _away(self, nodes: Set[int]) -> Set[int]:
        """Those of these nodes that are not connected; none where that cannot be found out.

        Arguments:
            nodes: Flower's ids of nodes that are waited for.
        """
        try:
            there = set(self.grid.get_node_ids())
        except Exception:
            log(DEBUG, "nobody could say which nodes are there", exc_info=True)
            return set()
        self.note_who_is_there(there)
        return nodes - there

    def _note_late(self, node: int) -> None:
        """Late once, a node may be back in the next cycle; staying silent, it would cost all others every round."""
        times = 1
        known = self._late.get(node)
        if known is not None:
            times = known.times + 1
        pause = pauses_after(times) * self.deadline
        self._late[node] = _Late(times, time.monotonic() + pause)

    def _send(self, key: int, request: Request, awaited: _Awaited) -> bool:
        """Push one message and let a thread wait for its reply; False if it could not be pushed."""
        thread = send_and_pull(
            self.grid,
            request,
            awaited.kind,
            end=awaited.end,
            put=lambda reply: awaited.arrived.put((key, reply)),
        )
        if thread is None:
            return False
        given_up = awaited.end + self.deadline
        self._pulling[request.node] = _Pulling(thread, given_up)
        return True


def pauses_after(times: int) -> int:
    """For how many deadlines a node is left alone that was silent so many times in a row.

    Arguments:
        times: At least one.
    """
    if times == 1:
        return 0
    return min(2 ** (times - 2), MAX_PAUSES)
