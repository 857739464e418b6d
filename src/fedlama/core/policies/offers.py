"""Shorter intervals on offer: what each saves and costs, and which of them a budget buys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise


@dataclass(frozen=True)
class Offer:
    """One rung down for one layer: what it is worth, and what it costs.

    Arguments:
        worth: Drift that is saved, per byte.
        index: The number of the layer.
        longer: The interval that it has then.
        shorter: The interval that it gets.
        price: Bytes per base interval.
    """

    worth: Fraction
    index: int
    longer: int
    shorter: int
    price: Fraction


def spent(
    costs: Sequence[float], intervals: Sequence[int], base_interval: int
) -> Fraction:
    """The bytes per base interval that these intervals cost.

    Arguments:
        costs: The bytes of every layer each time that it is sent.
        intervals: The interval of every layer, in steps.
        base_interval: τ', in steps.
    """
    total = Fraction(0)
    for cost, interval in zip(costs, intervals, strict=True):
        times_sent = Fraction(base_interval, interval)
        total += Fraction(cost) * times_sent
    return total


def offers_of(
    index: int,
    ladder: Sequence[int],
    base_interval: int,
    *,
    weight: Fraction,
    cost: float,
) -> list[Offer]:
    """Every rung of one layer, with the drift that it saves for a byte.

    Arguments:
        index: The number of the layer.
        ladder: The intervals that it may have, the shortest first.
        base_interval: τ', in steps.
        weight: What a step more between two of its averages costs in drift.
        cost: Its bytes each time that it is sent.
    """
    offers: list[Offer] = []
    for shorter, longer in pairwise(ladder):
        saved = weight * (longer - shorter)
        times_more = Fraction(base_interval, shorter) - Fraction(base_interval, longer)
        price = Fraction(cost) * times_more
        offer = Offer(
            worth=saved / price,
            index=index,
            longer=longer,
            shorter=shorter,
            price=price,
        )
        offers.append(offer)
    return offers


def buy(offers: Iterable[Offer], intervals: list[int], left: Fraction) -> None:
    """Shorten intervals, the best offer first, as long as there are bytes left.

    Arguments:
        offers: Every rung of every layer that may be shortened.
        intervals: Of every layer, the longest where there are offers; changed in place.
        left: The bytes per base interval that may be spent.
    """
    best_first = sorted(offers, key=_rank)
    for offer in best_first:
        interval = intervals[offer.index]
        is_next_rung = interval == offer.longer
        if is_next_rung and offer.price <= left:
            intervals[offer.index] = offer.shorter
            left -= offer.price


def _rank(offer: Offer) -> tuple[Fraction, int, int, int]:
    """Best first; of equal offers the longer interval first, as a layer is shortened rung by rung."""
    return (
        -offer.worth,
        -offer.longer,
        offer.index,
        offer.shorter,
    )
