"""Shorter intervals on offer: what each saves and costs, and which of them a budget buys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

# Layers for each of whose intervals a plan is tried: what smaller ones leave over is too little to matter
TRIED = 8


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


def best_intervals(
    offers: Iterable[Offer], longest: Sequence[int], left: Fraction
) -> list[int]:
    """Shortened intervals that save about as much drift as these bytes can buy.

    To buy the best offers first, as long as they fit, is optimal for what is spent; but a large layer may then not fit
    any more, and much is left over. So other beginnings are tried, too, and the plan that saves most is taken. It never
    saves less than one interval for all layers would.

    Arguments:
        offers: Every rung of every layer that may be shortened.
        longest: The interval of every layer, the longest where there are offers.
        left: The bytes per base interval that may be spent.
    """
    best_first = sorted(offers, key=_rank)
    best = _Plan(longest, left)
    best.buy(best_first)
    for first, others in _beginnings(best_first):
        plan = _Plan(longest, left)
        plan.buy(first)
        plan.buy(others)
        if plan.saved > best.saved:
            best = plan
    return best.intervals


def _beginnings(
    best_first: Sequence[Offer],
) -> Iterator[tuple[list[Offer], list[Offer]]]:
    """What to buy before anything else, and what may be bought after that, both the best first."""
    # One interval for all, and then what is worth most
    intervals = {offer.shorter for offer in best_first}
    for interval in sorted(intervals):
        first = [offer for offer in best_first if offer.shorter >= interval]
        others = [offer for offer in best_first if offer.shorter < interval]
        yield first, others
    # One of the layers that cost most, at each of its intervals: its rungs come in the order in which they are bought
    for index in _most_expensive(best_first):
        own = [offer for offer in best_first if offer.index == index]
        others = [offer for offer in best_first if offer.index != index]
        for rungs in range(len(own) + 1):
            yield own[:rungs], others


class _Plan:
    """Intervals, what is left to spend, and the drift that was saved."""

    def __init__(self, longest: Sequence[int], left: Fraction) -> None:
        self.intervals = list(longest)
        self.left = left
        self.saved = Fraction(0)

    def buy(self, best_first: Iterable[Offer]) -> None:
        """Take every offer that fits, in this order."""
        for offer in best_first:
            interval = self.intervals[offer.index]
            is_next_rung = interval == offer.longer
            if is_next_rung and offer.price <= self.left:
                self.intervals[offer.index] = offer.shorter
                self.left -= offer.price
                self.saved += offer.worth * offer.price


def _most_expensive(offers: Iterable[Offer]) -> list[int]:
    """The layers that cost most, at most TRIED of them."""
    prices: defaultdict[int, Fraction] = defaultdict(Fraction)
    for offer in offers:
        prices[offer.index] += offer.price
    in_order = sorted(prices)
    # Stable: of layers that cost the same the first ones
    in_order.sort(key=lambda index: prices[index], reverse=True)
    return in_order[:TRIED]


def _rank(offer: Offer) -> tuple[Fraction, int, int, int]:
    """Best first; of equal offers the longer interval first, as a layer is shortened rung by rung."""
    return (
        -offer.worth,
        -offer.longer,
        offer.index,
        offer.shorter,
    )
