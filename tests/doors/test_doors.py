"""Each door with an example that only these tests know: the rest of the house need not be touched."""

import ast
import inspect
from pathlib import Path

import pytest
import torch

import fedlama
from doors import examples
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
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.local import LocalRule
from fedlama.rows import Slot
from fedlama.run.choices import CODECS, LOCAL_RULES, POLICIES, SERVER_RULES
from fedlama.server import ServerRule

PACKAGE = Path(fedlama.__file__).parent
# What a round goes through
ROOMS = ("rows", "server", "training", "averager", "flower", "processes")


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


def test_every_example_is_a_few_lines():
    classes = [
        value
        for value in vars(examples).values()
        if inspect.isclass(value) and value.__module__ == examples.__name__
    ]
    assert len(classes) == 7
    for example in classes:
        lines = inspect.getsource(example).splitlines()
        assert len(lines) < 40, example


def classes_asked_for(path):
    """The names of classes that a module holds values against."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id in ("isinstance", "issubclass"):
            for part in ast.walk(node.args[1]):
                yield getattr(part, "attr", getattr(part, "id", None))


def test_no_round_asks_for_the_class_of_what_came_through_a_door():
    choices = [POLICIES, LOCAL_RULES, SERVER_RULES, CODECS]
    behind_doors = {kind.__name__ for each in choices for kind in each.values()}
    behind_doors |= {"Chain", "ErrorFeedback", "Forwarding", "OnSGD", "PlainSync"}
    assert {"FedLAMA", "SGD", "Mean", "Rotate"} <= behind_doors
    doors = {one.__name__ for one in (Policy, LocalRule, ServerRule, Codec)}
    assert not doors & behind_doors

    found = []
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            asked = behind_doors.intersection(classes_asked_for(path))
            found += [f"{path.name}: {name}" for name in asked]
    assert found == []
