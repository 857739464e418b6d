"""Network replay: what a finished training would have taken on a given network, from the bytes and rounds it recorded.

A round is one round trip. A client receives its bytes, takes its steps and sends its bytes; the round ends when the
slowest client is done:

    bits down / downlink + latency + overhead + steps · step time · E[slowest of m] + bits up / uplink

The overhead is what a deployment takes beside that, such as starting a process for every message. All clients of a
cohort move the same bytes, so the rest is a sum. If the downlink keeps its ratio to the uplink, the time to a target is
A + B / uplink, and two settings are equally fast at exactly one bandwidth, or at none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import fmean
from typing import Literal

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.reading import active_clients
from fedlama.report.numbers.stragglers import slowest_of
from fedlama.report.numbers.targets import (
    checked_target,
    common_target,
    compared_curves,
    first_step,
)
from fedlama.run.recorded import RecordedRun
from fedlama.training.records import Record


@dataclass(frozen=True)
class Network:
    """What every client has: bits per second, seconds, and the σ of a log-normal factor on its time for a step."""

    uplink: float = 10e6
    downlink: float = 50e6
    latency: float = 0.05  # of a round trip
    step_time: float = 0.02
    straggling: float = 0.0
    round_overhead: float = 0.0  # seconds of every round, whatever is sent in it


# A home's connection, and a step of a small network on a small computer
DEFAULT_NETWORK = Network()


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
        per_round = network.latency + network.round_overhead
        between_rounds = self.rounds * per_round
        # A round ends when its slowest client is done
        slowest = slowest_of(self.clients, network.straggling)
        training = self.step * network.step_time * slowest
        return between_rounds + training

    def bits(self, network: Network) -> float:
        """B: bits on the uplink, and those of the downlink as the uplink would take as long for."""
        ratio = network.uplink / network.downlink
        as_uplink = self.downlink_bytes * ratio
        return 8 * (self.uplink_bytes + as_uplink)

    def seconds(self, network: Network, uplink: float | None = None) -> float:
        """The time to the target.

        Arguments:
            network: what every client has.
            uplink: bits per second in place of the network's; the downlink changes in proportion.
        """
        bits_per_second = uplink or network.uplink
        sending = self.bits(network) / bits_per_second
        return self.waiting(network) + sending


@dataclass(frozen=True)
class Payoff:
    """Where one setting is faster than another: "below" or "above" a bandwidth in bits per second, or everywhere."""

    where: Literal["below", "above", "always", "never", "equal"]
    uplink: float | None = None


@dataclass(frozen=True)
class Replay:
    """The demands of all settings on one network; None where a setting never reaches the target."""

    network: Network
    target: float
    chosen: bool  # by us: the best score that every setting reaches
    demands: tuple[Demand | None, ...]


def replay(
    comparison: RunComparison, network: Network, target: float | None = None
) -> Replay | None:
    """Replay all settings to a target score; None where nothing was evaluated, or nobody knows the cohort's size.

    Arguments:
        comparison: the settings.
        network: what every client has.
        target: an accuracy from 0 to 1, or a loss; by default the best score that every setting reaches.
    """
    curves = compared_curves(comparison)
    if target is None:
        goal = common_target(comparison, curves)
    else:
        goal = checked_target(target, comparison.metric)
    if goal is None:
        return None

    demands: list[Demand | None] = []
    for setting, curve in zip(comparison.settings, curves, strict=True):
        clients = active_clients(setting.config)
        if clients is None:
            return None
        step = first_step(curve, goal, comparison.sign)
        demand: Demand | None = None
        if step is not None:
            demand = _demand(setting, step, clients)
        demands.append(demand)
    return Replay(
        network=network,
        target=goal,
        chosen=target is None,
        demands=tuple(demands),
    )


def _demand(setting: ComparedSetting, step: int, clients: int) -> Demand:
    """Every seed's own records say what it had sent by this step."""
    rounds: list[int] = []
    sent: list[int] = []
    received: list[int] = []
    for run in setting.runs:
        records = _records_until(run, step)
        rounds.append(len(records))
        sent.append(sum(record.uplink_bytes for record in records))
        received.append(sum(record.downlink_bytes for record in records))

    return Demand(
        step=step,
        rounds=fmean(rounds),
        uplink_bytes=fmean(sent) / clients,
        downlink_bytes=fmean(received) / clients,
        clients=clients,
    )


def _records_until(run: RecordedRun, step: int) -> list[Record]:
    until: list[Record] = []
    for record in run.records:
        if record.step <= step:
            until.append(record)
    return until


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

    # One of them waits less, the other sends less: they are level at one bandwidth.
    level = fewer_bits / more_waiting
    if fewer_bits > 0:
        return Payoff("below", level)
    return Payoff("above", level)


@dataclass(frozen=True)
class FastestBand:
    """A range of uplinks in bits per second, and the setting that is the fastest in it."""

    low: float
    high: float
    index: int  # of the setting


def fastest_bands(
    played: Replay, low: float = 1e6, high: float = 1e9
) -> list[FastestBand]:
    """Which setting is the fastest at which uplink, from the slowest uplink to the fastest.

    Arguments:
        played: the replay.
        low: where the bands begin.
        high: where they end.
    """
    reached: dict[int, Demand] = {}
    for index, demand in enumerate(played.demands):
        if demand is not None:
            reached[index] = demand
    if not reached:
        return []

    # Two settings change places at one bandwidth at most, so between these ends nothing changes.
    ends = {low, high}
    for ours, theirs in combinations(reached.values(), 2):
        level = payoff(ours, theirs, played.network).uplink
        if level is not None and low < level < high:
            ends.add(level)

    bands: list[FastestBand] = []
    for start, end in pairwise(sorted(ends)):
        middle = math.sqrt(start * end)
        fastest = _fastest(reached, played.network, uplink=middle)
        if bands and bands[-1].index == fastest:
            bands[-1] = replace(bands[-1], high=end)
            continue
        band = FastestBand(start, end, fastest)
        bands.append(band)
    return bands


def _fastest(demands: Mapping[int, Demand], network: Network, uplink: float) -> int:
    """Which setting is, at this uplink; the first of several."""
    times: list[tuple[float, int]] = []
    for index, demand in demands.items():
        seconds = demand.seconds(network, uplink)
        times.append((seconds, index))
    _, fastest = min(times)
    return fastest


def bandwidths(low: float = 1e6, high: float = 1e9, steps: int = 48) -> list[float]:
    """Uplinks to draw, evenly spaced on a logarithmic axis: a round number at every decade."""
    ratio = high / low
    uplinks: list[float] = []
    for index in range(steps + 1):
        share = index / steps
        uplinks.append(low * ratio**share)
    return uplinks
