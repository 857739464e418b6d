"""Each door with an example that only these tests know: the rest of the house need not be touched."""

import pytest
import torch

import fedlama
from doors.examples import (
    Counting,
    Forgetful,
    Halves,
    HeavyBall,
    Rotating,
    Spring,
    TurningInPlace,
)
from doors.harness import check_door, run, same_bits, weights
from fedlama.rows import Slot


def test_a_local_rule():
    result = check_door(local=Spring(fedlama.SGD(0.05, 4, momentum=0.5)))
    assert not same_bits(result, run(local=fedlama.SGD(0.05, 4, momentum=0.5)))
    built_in = run(local=fedlama.FedProx(fedlama.SGD(0.05, 4, momentum=0.5), 0.3))
    torch.testing.assert_close(weights(result), weights(built_in), rtol=1e-4, atol=1e-6)


def test_a_slot_that_outlives_windows():
    result = check_door(local=Counting(fedlama.SGD(0.05, 4)))
    assert not same_bits(result, check_door(local=Forgetful(fedlama.SGD(0.05, 4))))


def test_a_policy_with_a_memory():
    result = check_door(policy=Rotating())
    assert [record.intervals.index(6) for record in result.records[3::3]] == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    # Of 24 rounds, a layer skips two in the one cycle in which it is long; layer 0 is long in none that is run
    assert [layer.aggregations for layer in result.layers] == [24] + [22] * 7


def test_a_policy_with_a_memory_that_it_changes_in_place():
    # A resumed run rehearses a cycle first, and must go on from what was saved.
    result = check_door(policy=TurningInPlace())
    # Three rounds per cycle with a layer of interval 6 among others of 2: turn = 3, 6, 9, … of eight layers
    long = [record.intervals.index(6) for record in result.records[3::3]]
    assert long == [3, 6, 1, 4, 7, 2, 5]


def test_a_server_rule():
    result = check_door(server=HeavyBall())
    assert same_bits(result, run(server=fedlama.server.Momentum(0.5)))
    assert not same_bits(result, run())


def test_a_codec():
    result = check_door(uplink=Halves())
    plain = run()
    assert not same_bits(result, plain)
    assert 0.4 < result.uplink_bytes / plain.uplink_bytes < 0.8
    assert result.uplink_share < plain.uplink_share


def test_everything_at_once():
    check_door(
        policy=Rotating(),
        local=Counting(fedlama.SGD(0.05, 4)),
        server=HeavyBall(),
        uplink=fedlama.compress.ErrorFeedback(Halves(), lifetime="run"),
        downlink=fedlama.compress.Rotate(2.0),
        evaluate="ema",
        faults=fedlama.Faults(straggle=0.1, min_clients=1),
    )


def test_two_slots_of_one_name_are_refused():
    class Taken(HeavyBall):
        slots = (Slot("last change", "run"),)

    with pytest.raises(fedlama.InputError, match="keep a slot called 'last change'"):
        run(server=Taken(), uplink=fedlama.compress.LowRank(1))
