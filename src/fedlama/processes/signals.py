"""Ctrl-C and SIGTERM: the first asks for an orderly end, a second one stops at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds: `timeout` sends its signal to a process and then to its group
SAME_SIGNAL = 0.5
STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(ask_to_stop: Callable[[], None]) -> Iterator[None]:
    """Inside, the first signal calls `ask_to_stop`, and a later one raises KeyboardInterrupt.

    Signals can be handled in the main thread only: in another one they keep their meaning.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first: float | None = None
    interrupted = False

    def handle(number: int, frame: object) -> None:
        nonlocal first, interrupted
        if first is None:
            first = time.monotonic()
            ask_to_stop()
        elif time.monotonic() - first > SAME_SIGNAL and not interrupted:
            interrupted = True  # a third one would interrupt the tidying up after this
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt_once() -> None:
    """From now on the first signal raises KeyboardInterrupt, and later ones mean nothing: the program is ending.

    For a program as a whole. Without it a second SIGTERM, sent while the first is obeyed, would end it in the middle of
    that, and not with its own exit code.
    """

    def handle(number: int, frame: object) -> None:
        ignore_signals()
        raise KeyboardInterrupt

    for number in STOPPING:
        signal.signal(number, handle)


def ignore_signals() -> None:
    """In a worker process: a signal is sent to the whole group, and the parent decides what it means."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
