"""Each door with an example that only this file knows, in a few lines: the rest of the house need not be touched."""

from dataclasses import dataclass, replace

import pytest
import torch

import fedlama
from doors.harness import check_door, run, same_bits, weights
from fedlama.compress import Codec, Coded
from fedlama.compress.framing import Reader
from fedlama.core import advance, plan_by_intervals
from fedlama.local.on_sgd import OnSGD
from fedlama.rows import Slot


@dataclass(frozen=True)
class Spring(OnSGD):
    """A FedProx of our own."""

    strength: float = 0.3

    def step(self, row, gradient, own, server, *, rate, kernels):
        gradient += self.strength * (row - server["model"])
        self.base.step(row, gradient, own, server, rate=rate, kernels=kernels)


def test_a_local_rule():
    result = check_door(local=Spring(fedlama.SGD(0.05, 4, momentum=0.5)))
    assert not same_bits(result, run(local=fedlama.SGD(0.05, 4, momentum=0.5)))
    built_in = run(local=fedlama.FedProx(fedlama.SGD(0.05, 4, momentum=0.5), 0.3))
    torch.testing.assert_close(weights(result), weights(built_in), rtol=1e-4, atol=1e-6)


@dataclass(frozen=True)
class Counting(OnSGD):
    """A slot that outlives windows: how many steps this client has ever taken slows it down."""

    @property
    def slots(self):
        return (Slot("steps so far", "run"),)

    def step(self, row, gradient, own, server, *, rate, kernels):
        own["steps so far"] += 1
        row -= rate * gradient / own["steps so far"].sqrt()


def test_a_slot_that_outlives_windows():
    result = check_door(local=Counting(fedlama.SGD(0.05, 4)))
    assert not same_bits(result, check_door(local=Forgetful(fedlama.SGD(0.05, 4))))


@dataclass(frozen=True)
class Forgetful(Counting):
    """The same, forgotten when a window ends."""

    @property
    def slots(self):
        return (Slot("steps so far", "window"),)


@dataclass(frozen=True)
class Rotating:
    """A policy with a memory: after each cycle another layer becomes long, whatever was measured."""

    base_interval: int = 2
    longest_cycle: int = 6
    uses: tuple = ("moved", "norm")

    def start(self, layers):
        start = fedlama.FedAvg(self.base_interval).start(layers)
        return replace(start, own={"turn": 0, "moved": []})

    def next(self, state, iterations):
        return plan_by_intervals(state, iterations, self.longest_cycle)

    def observe(self, state, plan, evidence, layers):
        after = advance(state, plan, evidence, layers)
        own = dict(
            state.own,
            moved=[
                *state.own["moved"],
                evidence.moved[plan.due[0]] / (1 + evidence.norm[plan.due[0]]),
            ],
        )
        if plan.adjusts:
            own["turn"] += 1
        long = own["turn"] % len(layers)
        intervals = [6 if layer == long else 2 for layer in range(len(layers))]
        return replace(
            after,
            own=own,
            intervals=tuple(intervals) if plan.adjusts else state.intervals,
        )


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


@dataclass(frozen=True)
class HeavyBall:
    """A server momentum of our own."""

    slots = (Slot("ball", "run"),)

    def apply(self, anchor, mean, own, *, count, periods):
        own["ball"].mul_(0.5**periods).add_(mean - anchor)
        return anchor + own["ball"]


def test_a_server_rule():
    result = check_door(server=HeavyBall())
    assert same_bits(result, run(server=fedlama.server.Momentum(0.5)))
    assert not same_bits(result, run())


@dataclass(frozen=True)
class Halves(Codec):
    """A lossy codec of our own: signs and one magnitude."""

    def code(self, x, *, key, bits=None, warm=None):
        packed = torch.cat([x.abs().mean().reshape(1), x.reshape(-1).sign()]).to(
            torch.float16
        )
        return Coded(side=packed.numpy().tobytes())

    def expect(self, side: Reader, shape):
        return Coded(side=side.take(2 * (1 + torch.Size(shape).numel())))

    def rebuild(self, coded, shape, *, key):
        numbers = torch.frombuffer(bytearray(coded.side), dtype=torch.float16).float()
        return (numbers[0] * numbers[1:]).reshape(shape)


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
