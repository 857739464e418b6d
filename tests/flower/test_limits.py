"""The limit of tests that start programs."""

import signal
import subprocess
import sys
import time

import pytest

from flower.limits import limit

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGALRM"), reason="there is no SIGALRM"
)


def sleeps():
    time.sleep(60)


def waits_for_a_program():
    program = [sys.executable, "-c", "import time; time.sleep(60)"]
    subprocess.run(program, check=True)


def swallows_errors():
    while True:
        try:
            time.sleep(60)
        except Exception:
            continue


@pytest.mark.parametrize("hang", [sleeps, waits_for_a_program, swallows_errors])
def test_what_hangs_fails_with_a_sentence(hang):
    began = time.monotonic()
    with (
        pytest.raises(pytest.fail.Exception, match=r"^it took longer than 0\.5 sec"),
        limit(0.5, "it"),
    ):
        hang()
    assert time.monotonic() < began + 30


def test_what_ends_in_time_is_left_alone():
    handler = signal.getsignal(signal.SIGALRM)
    with limit(60, "it"):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is handler
