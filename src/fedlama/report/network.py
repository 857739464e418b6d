"""Network replay: what a finished training would have taken on a given network, from the bytes and rounds it recorded.

A round is one round trip. A client receives its bytes, takes its steps and sends its bytes; the round ends when the
slowest client is done:

    bits down / downlink + latency + steps · step time · E[slowest of m] + bits up / uplink

All clients of a cohort move the same bytes, so the rest is a sum. If the downlink keeps its ratio to the uplink, the
time to a target is A + B / uplink, and two settings are equally fast at exactly one bandwidth, or at none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from fedlama.base import InputError
from fedlama.report.comparison import Comparison, Setting
from fedlama.run.config import DEFAULT_CLIENTS
from fedlama.run.directory import Run
from fedlama.training import Participation

TARGET_GRAIN = (
    1000  # a target of our own choice is a multiple of a thousandth, so that what is printed is what is meant
)


@dataclass(frozen=True)
class Network:
    """What every client has: bits a second, seconds, and the σ of a log-normal factor on its time for a step."""

    uplink: float = 10e6
    downlink: float = 50e6
    latency: float = 0.05  # of a round trip
    step_time: float = 0.02
    straggling: float = 0.0


DEFAULT_NETWORK = Network()  # a home's connection, and a step of a small network on a small computer


@dataclass(frozen=True)
class Demand:
    """What a setting needs up to its target: means over seeds, bytes of one client."""

    step: int
    rounds: float
    uplink_bytes: float
    downlink_bytes: float
    clients: int

    def waiting(self, network: Network) -> float:
        """A: seconds that no bandwidth shortens."""
        slowest = slowest_of(self.clients, network.straggling)
        return self.rounds * network.latency + self.step * network.step_time * slowest

    def bits(self, network: Network) -> float:
        """B: bits on the uplink, and those of the downlink as the uplink would take as long for."""
        return 8 * (self.uplink_bytes + self.downlink_bytes * network.uplink / network.downlink)

    def seconds(self, network: Network, uplink: float | None = None) -> float:
        """The time to the target; with another uplink, the downlink changes in proportion."""
        return self.waiting(network) + self.bits(network) / (uplink or network.uplink)


@dataclass(frozen=True)
class Payoff:
    """Where one setting is faster than another: "below" or "above" a bandwidth in bits a second, or everywhere."""

    where: Literal["below", "above", "always", "never", "equal"]
    uplink: float | None = None


@dataclass(frozen=True)
class Replay:
    """The demands of all settings on one network; None where a setting never reaches the target."""

    network: Network
    target: float
    chosen: bool  # by us: the best score that every setting reaches
    demands: tuple[Demand | None, ...]


def replay(comparison: Comparison, network: Network, target: float | None = None) -> Replay | None:
    """Replay all settings to a target score; None where nothing was evaluated, or nobody knows the cohort's size."""
    goal = common_target(comparison) if target is None else _checked(target, comparison)
    sizes = [active_clients(setting.config) for setting in comparison.settings]
    if goal is None or None in sizes:
        return None
    pairs = zip(comparison.settings, sizes, strict=True)
    demands = tuple(_demand(setting, goal, comparison, size or 1) for setting, size in pairs)
    return Replay(network, goal, target is None, demands)


def _checked(target: float, comparison: Comparison) -> float:
    most, allowed = (1.0, "up to 1") if comparison.metric == "accuracy" else (math.inf, "finite")
    if not 0 < target <= most or math.isinf(target):
        raise InputError(
            f"--target {target:g} is no {comparison.metric}: write a number above 0 and {allowed}, such as --target 0.9"
        )
    return target


def active_clients(config: Mapping[str, Any]) -> int | None:
    """How many clients train at a time, from a configuration of dotted keys; None where it does not tell."""
    active, population = config["participation.active"], config.get("partition.clients")
    if not isinstance(active, float):
        return int(active)
    if population is None and config.get("partition.kind") == "natural":
        return None
    return Participation(active).count(population or DEFAULT_CLIENTS)


def common_target(comparison: Comparison) -> float | None:
    """The best score that every setting reaches, on the easier side of a thousandth; finished settings count first."""
    curves = [setting.curve for setting in comparison.settings if setting.curve.steps and setting.finished]
    curves = curves or [setting.curve for setting in comparison.settings if setting.curve.steps]
    if not curves:
        return None
    if comparison.metric == "accuracy":
        worst = min(max(curve.mean) for curve in curves)
        return math.floor(round(worst * TARGET_GRAIN, 6)) / TARGET_GRAIN
    return math.ceil(round(max(min(curve.mean) for curve in curves) * TARGET_GRAIN, 6)) / TARGET_GRAIN


def _demand(setting: Setting, target: float, comparison: Comparison, clients: int) -> Demand | None:
    """The mean curve over seeds says when; every seed's own records say what it had sent by then."""
    sign = 1 if comparison.metric == "accuracy" else -1
    curve = zip(setting.curve.steps, setting.curve.mean, strict=True)
    step = next((step for step, score in curve if sign * score >= sign * target), None)
    if step is None:
        return None
    until = [_records_until(run, step) for run in setting.runs]
    return Demand(
        step=step,
        rounds=fmean(len(records) for records in until),
        uplink_bytes=fmean(sum(record["uplink_bytes"] for record in records) for records in until) / clients,
        downlink_bytes=fmean(sum(record["downlink_bytes"] for record in records) for records in until) / clients,
        clients=clients,
    )


def _records_until(run: Run, step: int) -> list[dict[str, Any]]:
    return [record for record in run.records if record["step"] <= step]


def payoff(ours: Demand, theirs: Demand, network: Network) -> Payoff:
    """Where `ours` is the faster one: A₁ + B₁ / u < A₂ + B₂ / u."""
    more_waiting = ours.waiting(network) - theirs.waiting(network)
    fewer_bits = theirs.bits(network) - ours.bits(network)
    if math.isclose(more_waiting, 0, abs_tol=1e-12) and fewer_bits == 0:
        return Payoff("equal")
    if more_waiting <= 0 <= fewer_bits:
        return Payoff("always")
    if fewer_bits <= 0 <= more_waiting:
        return Payoff("never")
    return Payoff("below" if fewer_bits > 0 else "above", fewer_bits / more_waiting)


def slowest_of(clients: int, sigma: float) -> float:
    """E[max of m] for m independent factors exp(σ Z): 1 for the median client, exactly 1 where nobody straggles.

    The density of the largest of m normal draws is m φ(z) Φ(z)^(m−1). The integrand vanishes at both ends, so the
    trapezium rule is exact to rounding, and unlike a simulation it needs no seed.
    """
    if sigma == 0:
        return 1.0
    steps, low, high = 4000, -10.0, 10.0 + sigma
    width = (high - low) / steps
    places = (low + width * index for index in range(steps + 1))
    return width * sum(
        clients * math.exp(sigma * z - z * z / 2) / math.sqrt(2 * math.pi) * _normal(z) ** (clients - 1) for z in places
    )


def _normal(z: float) -> float:
    """Φ, the distribution of a standard normal draw."""
    return math.erfc(-z / math.sqrt(2)) / 2


def bandwidths(low: float = 1e6, high: float = 1e9, steps: int = 48) -> list[float]:
    """Uplinks to draw, evenly spaced on a logarithmic axis: a round number at every decade."""
    return [low * (high / low) ** (index / steps) for index in range(steps + 1)]
