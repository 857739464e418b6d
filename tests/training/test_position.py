"""Where a run stands after a round that counts, and after an attempt that came to nothing."""

import pickle
from dataclasses import replace

import torch

from fedlama import FedAvg
from fedlama.core import Layout, Message, TensorEntry, Traffic
from fedlama.server import Server
from fedlama.server.exclusions import LATE, TOO_FEW_LEFT, Attempts, entries_of
from fedlama.training.position import Position, PositionArrays

SERVER = Server(Layout.pack([TensorEntry("weight", 3)]), FedAvg(2))
COUNTERS = torch.zeros(1, dtype=torch.int64)


def at_the_start():
    row = torch.zeros(SERVER.layout.width)
    return Position(SERVER.start(row), COUNTERS)


def discarded(position, *, up, down):
    """The server's state after an attempt with so many bytes that came to nothing."""
    traffic = Traffic(up=Message({0: up}), down=Message({0: down}))
    return SERVER.discard(position.server_state, traffic)


def at_step(step):
    start = at_the_start()
    policy = replace(start.policy_state, step=step)
    return replace(start, server_state=replace(start.server_state, policy_state=policy))


def test_new_clients_come_with_a_window_or_where_the_last_were_given_up():
    brings = [at_step(step).brings_clients(4) for step in range(9)]
    assert brings == [True, False, False, False] * 2 + [True]
    assert replace(at_step(2), discarded=Attempts()).brings_clients(4)


def test_attempts_of_a_round_carry_over_to_the_one_that_counts():
    start = at_the_start()
    late = entries_of({5: LATE}, start.attempt)
    first = start.given_up(discarded(start, up=12, down=24), late, [2, 8])
    of_first = (
        {"client": 2, "reason": TOO_FEW_LEFT, "attempt": 1},
        {"client": 5, "reason": LATE, "attempt": 1},
        {"client": 8, "reason": TOO_FEW_LEFT, "attempt": 1},
    )
    assert first.attempt == 1
    assert first.discarded == Attempts(of_first, 12, 24)

    late = entries_of({1: LATE}, first.attempt)
    second = first.given_up(discarded(first, up=0, down=36), late, [])
    of_second = ({"client": 1, "reason": LATE, "attempt": 2},)
    assert second.attempt == 2
    assert second.discarded == Attempts((*of_first, *of_second), 12 + 0, 24 + 36)

    # The third counts: its record has all of them, and what follows begins with nothing.
    charged = discarded(second, up=48, down=60)
    after = second.closed(charged, COUNTERS, window_ends=False)
    late = entries_of({4: LATE}, second.attempt)
    of_third = ({"client": 4, "reason": LATE, "attempt": 3},)
    assert second.attempts_until(after, late) == Attempts(
        (*of_first, *of_second, *of_third), 12 + 0 + 48, 24 + 36 + 60
    )
    assert after.discarded is None


def test_attempts_are_counted_per_window():
    position = replace(at_the_start(), attempt=3)
    assert (
        position.closed(position.server_state, COUNTERS, window_ends=False).attempt == 3
    )
    assert (
        position.closed(position.server_state, COUNTERS, window_ends=True).attempt == 0
    )


def test_a_position_is_the_same_after_its_way_between_processes():
    start = at_the_start()
    server_state = replace(
        start.server_state, slots={"velocity": torch.ones(SERVER.layout.width)}
    )
    attempts = Attempts(uplink_bytes=12)
    sent = Position(server_state, torch.tensor([7]), attempt=2, discarded=attempts)
    arrays = pickle.loads(pickle.dumps(PositionArrays.of(sent)))
    came = arrays.position()
    assert (came.policy_state, came.server_state.ledger) == (
        sent.policy_state,
        sent.server_state.ledger,
    )
    assert came.server_state.broadcast == sent.server_state.broadcast
    assert (came.attempt, came.discarded) == (2, attempts)
    assert torch.equal(came.row, sent.row)
    assert came.server_state.slots["velocity"].tolist() == [1.0] * SERVER.layout.width
    assert came.counters.tolist() == [7]
