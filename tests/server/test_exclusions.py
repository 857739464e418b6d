"""Who is in a record, why and at which attempt, worked out by hand."""

import pytest

from fedlama.core import Layout, Ledger, Message, TensorEntry, Traffic
from fedlama.server.exclusions import (
    LATE,
    NOT_FINITE,
    TOO_FEW_LEFT,
    Attempts,
    entries_of,
    entries_of_all,
    part_of_cycle,
)


def entry(client, reason, attempt=1):
    return {"client": client, "reason": reason, "attempt": attempt}


def test_entries_are_in_the_order_of_clients_and_count_attempts_from_one():
    assert entries_of({7: LATE, 2: NOT_FINITE}, 0) == [
        entry(2, NOT_FINITE, 1),
        entry(7, LATE, 1),
    ]
    assert entries_of({7: LATE}, 4) == [entry(7, LATE, 5)]
    assert entries_of({}, 0) == []


def test_who_did_nothing_wrong_is_in_an_attempt_that_came_to_nothing():
    excluded = entries_of({4: LATE}, 1)
    assert entries_of_all(excluded, [9, 1], 1) == [
        entry(1, TOO_FEW_LEFT, 2),
        entry(4, LATE, 2),
        entry(9, TOO_FEW_LEFT, 2),
    ]
    assert excluded == [entry(4, LATE, 2)]


def charged(ledger, *, up, down):
    return ledger.charge(Traffic(up=Message({0: up}), down=Message({0: down})))


def test_attempts_add_up_to_their_entries_and_bytes():
    start = Ledger.open(Layout.pack([TensorEntry("weight", 3)]))
    first = charged(start, up=24, down=36)
    second = charged(first, up=12, down=12)
    once = Attempts().extended([entry(1, LATE)], before=start, after=first)
    assert once == Attempts((entry(1, LATE),), uplink_bytes=24, downlink_bytes=36)
    twice = once.extended([entry(1, LATE, 2)], before=first, after=second)
    assert twice == Attempts((entry(1, LATE), entry(1, LATE, 2)), 24 + 12, 36 + 12)


@pytest.mark.parametrize(
    ("entered", "steps"),
    [
        (0, range(8, 16)),  # in an earlier cycle
        (8, range(8, 16)),  # with this one
        (12, range(12, 16)),  # in the middle, in the place of others
    ],
)
def test_who_is_excluded_is_back_at_the_start_of_a_cycle_or_of_a_cohort(entered, steps):
    assert part_of_cycle(range(8, 16), entered=entered) == steps
