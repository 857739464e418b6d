"""One message to a node, and the thread that waits for its reply.

`Grid.send_and_receive` does not keep its timeout: pulling a reply waits for objects that a dead node announced, for up
to two hours. So each reply is pulled in a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from logging import DEBUG

from flwr.app import Message, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

POLL_SECONDS = 0.2
MAX_POLL_SECONDS = 2.0
POLL_GROWTH = 1.2


@dataclass(frozen=True)
class Request:
    """A message that is to be sent: to which node, and what."""

    node: int
    content: RecordDict


def send_and_pull(
    grid: Grid,
    request: Request,
    kind: str,
    *,
    end: float,
    put: Callable[[Message], object],
) -> threading.Thread | None:
    """Push one message and let a thread wait for its reply; None if it could not be pushed.

    Arguments:
        grid: Flower's.
        request: The message.
        kind: Flower's type of it.
        end: When a reply is late, on the monotonic clock; Flower drops the message then.
        put: Called with the reply, in the thread.
    """
    left = end - time.monotonic()
    if left <= 0:
        return None
    message = Message(request.content, request.node, kind, ttl=left)
    # One at a time: Flower limits what is pushed at once.
    pushed = list(grid.push_messages([message]))
    if not pushed or not pushed[0]:
        return None

    # A daemon: the program may end while a dead node's reply is still being pulled.
    thread = threading.Thread(
        target=_pull,
        args=(grid, request.node, pushed[0], end, put),
        daemon=True,
        name=f"fedlama-{request.node}",
    )
    thread.start()
    return thread


def _pull(
    grid: Grid,
    node: int,
    message: str,
    end: float,
    put: Callable[[Message], object],
) -> None:
    """Ask for the reply to a message until it is there, or late."""
    pause = POLL_SECONDS
    while (left := end - time.monotonic()) > 0:
        try:
            for reply in grid.pull_messages([message]):
                put(reply)
                return
        except Exception:
            # Whatever a client makes of its reply, this client alone is late.
            log(DEBUG, "pulling the reply of node %s failed", node, exc_info=True)
        time.sleep(min(pause, left))
        pause = min(MAX_POLL_SECONDS, pause * POLL_GROWTH)
