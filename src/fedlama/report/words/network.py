"""The network replay in sentences: what it takes for granted, and where a setting pays off."""

from __future__ import annotations

from collections.abc import Collection

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.network import (
    Demand,
    Network,
    Payoff,
    Replay,
    fastest_bands,
    payoff,
    slowest_of,
)
from fedlama.report.words.formats import joined, named_score, score_text
from fedlama.report.words.units import bandwidth_text, duration_text


def target_text(played: Replay, comparison: RunComparison) -> str:
    """The target as a score: `90.6 %`, `a loss of 0.31`."""
    score = score_text(played.target, comparison.metric)
    return named_score(score, comparison.metric)


def network_text(network: Network) -> str:
    """`10 Mbit/s up and 50 Mbit/s down per client, a round trip of 50 ms, 20 ms per local step`."""
    parts = [
        f"{bandwidth_text(network.uplink)} up and {bandwidth_text(network.downlink)} down per client",
        f"a round trip of {duration_text(network.latency)}",
        f"{duration_text(network.step_time)} per local step",
    ]
    if network.round_overhead:
        parts.append(f"{duration_text(network.round_overhead)} beside it per round")
    if network.straggling:
        parts.append(f"clients that differ with σ = {network.straggling:g}")
    return ", ".join(parts)


def assumptions(played: Replay, comparison: RunComparison) -> list[str]:
    """What the replay takes for granted."""
    network = played.network
    uplink = bandwidth_text(network.uplink)
    downlink = bandwidth_text(network.downlink)
    round_trip = duration_text(network.latency)
    step = duration_text(network.step_time)
    target = target_text(played, comparison)
    whose = "as asked for"
    if played.chosen:
        whose = "the best that every setting reaches"
    overhead = ""
    if network.round_overhead:
        overhead = f" and {duration_text(network.round_overhead)} beside it"
    return [
        f"Every client sends at {uplink} and receives at {downlink}.",
        f"A round costs one round trip of {round_trip}{overhead}, a local step {step}.",
        _stragglers(played),
        f"The target is {target}, {whose}: the first evaluation at which the mean over seeds has it.",
    ]


def _stragglers(played: Replay) -> str:
    sigma = played.network.straggling
    if not sigma:
        return "All clients are equally fast."

    sizes = {demand.clients for demand in played.demands if demand}
    factors: list[str] = []
    for size in sorted(sizes):
        factors.append(
            f"{slowest_of(size, sigma):.2f} times the median for {size} clients"
        )

    sentence = f"Clients differ by a log-normal factor with σ = {sigma:g}; a round waits for the slowest"
    if factors:
        sentence += f", on average {' or '.join(factors)}"
    return f"{sentence}."


def payoff_sentences(played: Replay, comparison: RunComparison) -> list[str]:
    """For every setting that adapts, the bandwidth below which it pays off against each FedAvg setting."""
    target = target_text(played, comparison)
    pairs = list(zip(comparison.settings, played.demands, strict=True))

    sentences: list[str] = []
    for setting, demand in pairs:
        if demand is None:
            sentences.append(f"{setting.label} never reaches {target}.")

    for ours, our_demand in pairs:
        if not ours.adapts or our_demand is None:
            continue
        for theirs, their_demand in pairs:
            if theirs.adapts or their_demand is None:
                continue
            found = payoff(our_demand, their_demand, played.network)
            sentences.append(f"{ours.label} {_pays_off(found, theirs.label, target)}.")
    return [
        *sentences,
        *_never_fastest(played, comparison),
        *_reached_at_once(played, comparison),
    ]


def _never_fastest(played: Replay, comparison: RunComparison) -> list[str]:
    """A setting that beats each FedAvg somewhere may still be beaten by one of them everywhere."""
    if len(comparison.settings) == 1:
        return []

    # Far beyond what anybody has, so that "never" is meant.
    bands = fastest_bands(played, low=1.0, high=1e15)
    fastest = {band.index for band in bands}

    sentences: list[str] = []
    for setting, demand in zip(comparison.settings, played.demands, strict=True):
        if not setting.adapts or demand is None:
            continue
        if not _is_one_of(demand, fastest, played):
            sentences.append(
                f"{setting.label} is never the fastest: at every bandwidth another setting is sooner."
            )
    return sentences


def _is_one_of(demand: Demand, fastest: Collection[int], played: Replay) -> bool:
    """Whether it is among the fastest settings, or exactly as fast as one of them."""
    for index in fastest:
        other = played.demands[index]
        assert other is not None
        if payoff(demand, other, played.network).where == "equal":
            return True
    return False


def _reached_at_once(played: Replay, comparison: RunComparison) -> list[str]:
    """Nobody looked earlier, so these times may be too long, and what is said of them with it."""
    early: list[str] = []
    for setting, demand in zip(comparison.settings, played.demands, strict=True):
        if demand is not None and demand.step == setting.curve.steps[0]:
            early.append(setting.label)
    if not early:
        return []

    target = target_text(played, comparison)
    return [
        f"{joined(early)} had {target} at the first evaluation already and may have been faster."
    ]


def _pays_off(found: Payoff, other: str, target: str) -> str:
    if found.where == "equal":
        return f"takes exactly as long as {other} to {target}, at every bandwidth"
    if found.where == "always":
        return f"pays off against {other} at every bandwidth"
    if found.uplink is None:
        return f"never pays off against {other}: at every bandwidth it is no sooner at {target}"

    slower = "faster"
    if found.where == "below":
        slower = "slower"
    level = bandwidth_text(found.uplink)
    return f"pays off against {other} where the uplink is {slower} than {level}"
