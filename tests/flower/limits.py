"""How long a test may take: one that hangs fails, says so, and ends what it started."""

import signal
from contextlib import contextmanager

import pytest


@contextmanager
def limit(seconds, what):
    """Fail where this takes longer. What waits is interrupted, so that fixtures still end their programs."""

    def fail(number, frame):
        # No AssertionError or other Exception, which what is interrupted might take for its own.
        pytest.fail(f"{what} took longer than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
