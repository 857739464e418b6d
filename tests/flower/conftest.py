"""Tests that start programs of Flower have a limit each; the others wait for nothing but themselves."""

import pytest

from flower.limits import limit

pytest.register_assert_rewrite("flower.programs")

# The slowest takes four minutes on two busy cores, and the setup of a deployment, with four runs that many tests look
# at, seven; where others work on them, too, three times as long. A single wait has a shorter limit of its own.
SECONDS = 1200.0
SETUP_SECONDS = 2400.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    # What several tests share is set up for the first of them.
    return (yield from limited(item, "the setup of", SETUP_SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from limited(item, "the test", SECONDS))


def limited(item, what, seconds):
    if item.get_closest_marker("slow") is None:
        return (yield)
    with limit(seconds, f"{what} {item.name}"):
        return (yield)
