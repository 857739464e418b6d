"""One example for each door, in a few lines: the rest of the house need not be touched."""

from dataclasses import dataclass, replace

import torch

import fedlama
from fedlama.compress import Codec, Coded
from fedlama.compress.framing import Reader
from fedlama.core import advance, plan_by_intervals
from fedlama.local import OnSGD
from fedlama.rows import Slot


@dataclass(frozen=True)
class Spring(OnSGD):
    """A FedProx of our own."""

    strength: float = 0.3

    def step(self, row, gradient, own, server, *, rate, kernels):
        gradient += self.strength * (row - server["model"])
        self.base.step(row, gradient, own, server, rate=rate, kernels=kernels)


@dataclass(frozen=True)
class Counting(OnSGD):
    """A slot that outlives windows: how many steps this client has ever taken slows it down."""

    @property
    def slots(self):
        return (Slot("steps so far", "run"),)

    def step(self, row, gradient, own, server, *, rate, kernels):
        own["steps so far"] += 1
        row -= rate * gradient / own["steps so far"].sqrt()


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


@dataclass(frozen=True)
class TurningInPlace(Rotating):
    """A memory that is changed in place: the state before the round must not notice."""

    uses: tuple = ()

    def observe(self, state, plan, evidence, layers):
        after = advance(state, plan, evidence, layers)
        after.own["turn"] += 1
        after.own["moved"].append(after.step)
        if not plan.adjusts:
            return after
        intervals = [2] * len(layers)
        intervals[after.own["turn"] % len(layers)] = 6
        return replace(after, intervals=tuple(intervals))


@dataclass(frozen=True)
class HeavyBall:
    """A server momentum of our own."""

    slots = (Slot("ball", "run"),)

    def apply(self, anchor, mean, own, *, count, periods):
        own["ball"].mul_(0.5**periods).add_(mean - anchor)
        return anchor + own["ball"]


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
