"""What the layers' d_l say: which are made long, what intervals of their own can gain, what each policy would send."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from fedlama.compress import Channel, Codec, MessagePlace
from fedlama.core import (
    Evidence,
    Layer,
    Layout,
    Ledger,
    Message,
    Policy,
    Traffic,
    Variant,
    adjust_intervals,
)
from fedlama.core.policy_checks import next_checked, observe_checked, start_checked


@dataclass(frozen=True)
class LayerProfile:
    """One layer after the first cycle.

    Arguments:
        name: of the tensor or module.
        size: how many numbers it has.
        adaptive: whether it may be given another interval than τ'.
        discrepancy: d_l of Eq. 2, per parameter and step.
        interval: what the first adjustment gives it.
    """

    name: str
    size: int
    adaptive: bool
    discrepancy: float
    interval: int


@dataclass(frozen=True)
class Prediction:
    """What a policy would send in the whole run if the d_l stayed as they are after the first cycle.

    Arguments:
        policy: its name.
        uplink_bytes: what one active client sends.
        cost: C of Eq. 5 relative to averaging everything every τ' steps.
        discrepancy: Σ_l n_l d_l τ_l relative to FedAvg(τ'), with the intervals that it settles on.
        at_equal_bytes: the same relative to a FedAvg of equal bytes; below 1 layer-wise intervals gain.
    """

    policy: str
    uplink_bytes: int
    cost: float
    discrepancy: float
    at_equal_bytes: float


def spread_of_roots(discrepancy: Sequence[float], sizes: Sequence[int]) -> float:
    """The coefficient of variation of √d_l, every layer weighted by its size.

    At equal bytes Σ n_l d_l τ_l is smallest for τ_l ∝ 1/√d_l, and then 1/(1 + CV²) of what equal intervals give
    (Cauchy and Schwarz): no choice of intervals gains more.

    Arguments:
        discrepancy: d_l of Eq. 2.
        sizes: How many parameters each layer has.
    """
    total = sum(sizes)
    roots = 0.0
    squares = 0.0
    for d, size in zip(discrepancy, sizes, strict=True):
        roots += size * math.sqrt(d)
        squares += size * d
    if roots == 0:
        return 0.0

    # CV² = E[x²]/E[x]² − 1, which rounding can leave a little below zero where all layers are alike
    relative_square = squares * total / roots**2
    squared_variation = max(relative_square - 1, 0.0)
    return math.sqrt(squared_variation)


def predict(
    policy: Policy,
    layout: Layout,
    discrepancy: Sequence[float],
    iterations: int,
    *,
    codec: Codec | None = None,
    name: str | None = None,
) -> tuple[Prediction, tuple[int, ...]]:
    """Run the policy itself on these d_l, without training; and the intervals that it settles on.

    Arguments:
        policy: which layers are averaged when.
        layout: the model's.
        discrepancy: d_l of every layer.
        iterations: steps of the whole run.
        codec: of the uplink (default: float32 as it is).
        name: what the prediction is called (default: the policy).
    """
    ledger = Ledger.open(layout)
    state = start_checked(policy, layout.layers)
    sizes_of = ledger.plain_message
    if codec is not None:
        sizes_of = _coded_sizes(codec, layout)

    while state.step < iterations:
        plan = next_checked(policy, state, iterations, layers=len(layout.layers))
        after = state.step + plan.steps

        # Eq. 2 the other way round: d_l is per parameter and step, the numerator is over all of them.
        spread: dict[int, float] = {}
        for index in plan.due:
            size = layout.layers[index].size
            steps_apart = after - state.synchronised_at[index]
            spread[index] = discrepancy[index] * steps_apart * size

        message = sizes_of(plan.due)
        traffic = Traffic(up=message)
        ledger = ledger.charge(traffic, plan.due)
        evidence = Evidence(spread, sent=message.layers, clients=1)
        state = observe_checked(policy, state, plan, evidence, layout.layers)

    relative, at_equal_bytes = _relative_discrepancy(
        layout.layers,
        discrepancy,
        state.intervals,
        policy.base_interval,
    )
    prediction = Prediction(
        policy=name or str(policy),
        uplink_bytes=ledger.uplink_bytes,
        cost=ledger.relative_cost(state.step, policy.base_interval),
        discrepancy=relative,
        at_equal_bytes=at_equal_bytes,
    )
    return prediction, state.intervals


def _coded_sizes(codec: Codec, layout: Layout) -> Callable[[Sequence[int]], Message]:
    """The bytes of a message of these layers; the numbers in it are normal ones, which rotated changes resemble."""
    width = layout.width
    channel = Channel(codec, layout, seed=0)
    place = MessagePlace(round=1, client=0)
    anchor = torch.ones(width)
    generator = torch.Generator().manual_seed(0)
    change = 1e-3 * torch.randn(width, generator=generator)
    own = {slot.name: torch.zeros(width) for slot in channel.slots}

    # A policy asks for the same few sets of layers again and again, and each costs a pass of the codec.
    @cache
    def sizes_of(due: tuple[int, ...]) -> Message:
        message = channel.simulate(
            change,
            due,
            place,
            anchor=anchor,
            own=own,
        )
        return message.charged

    return lambda due: sizes_of(tuple(due))


def _relative_discrepancy(
    layers: Sequence[Layer],
    discrepancy: Sequence[float],
    intervals: Sequence[int],
    base_interval: int,
) -> tuple[float, float]:
    """Σ_l n_l d_l τ_l relative to FedAvg(τ'), and relative to a FedAvg of equal bytes."""
    grown = 0.0
    equal = 0.0
    sent = 0.0
    total = 0
    for layer, d, interval in zip(layers, discrepancy, intervals, strict=True):
        per_step = layer.size * d
        grown += per_step * interval
        equal += per_step * base_interval
        sent += layer.size / interval
        total += layer.size
    if equal == 0:
        return 1.0, 1.0

    # A FedAvg that sends this share has an interval of τ'/share, and as much more discrepancy.
    share_sent = sent * base_interval / total
    relative = grown / equal
    at_equal_bytes = relative * share_sent
    return relative, at_equal_bytes


def profiles_of(
    base_interval: int,
    increase_factor: int,
    variant: Variant,
    layout: Layout,
    measured: Sequence[float],
) -> list[LayerProfile]:
    """d_l, and the interval that the first adjustment gives; FedAvg's, too, shows what φ = 2 would make long."""
    intervals = adjust_intervals(
        measured,
        layout.sizes,
        base_interval=base_interval,
        increase_factor=max(increase_factor, 2),
        adaptive=layout.adaptive,
        rule=variant,
    )
    profiles: list[LayerProfile] = []
    for layer, d, interval in zip(layout.layers, measured, intervals, strict=True):
        profile = LayerProfile(
            name=layer.name,
            size=layer.size,
            adaptive=layer.adaptive,
            discrepancy=d,
            interval=interval,
        )
        profiles.append(profile)
    return profiles
