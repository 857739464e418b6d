"""Algorithm 2: which layers can be averaged less often (or should be averaged more often).

Sort the layers by d_l, the discrepancy per parameter and step (Eq. 2). δ_l is the share of the total discrepancy, λ_l
the share of all parameters, that the l layers of smallest d hold. Lengthening those layers lets a share δ_l of the
discrepancy grow and saves communication on a share λ_l of the model, so the walk stops where δ_l overtakes 1 − λ_l.

The sums are exact fractions, not floats: every runtime takes the same decision, ties included, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from fedlama.core.interval_checks import check_intervals, check_layers, check_variant


def adjust_intervals(
    discrepancy: Sequence[float],
    sizes: Sequence[int],
    *,
    base_interval: int,
    increase_factor: int,
    adaptive: Sequence[bool] | None = None,
    current: Sequence[int] | None = None,
    rule: str = "crossing",
) -> list[int]:
    """Algorithm 2: the interval of every layer for the next cycle, in steps and in the order given.

    Where every d_l is zero nothing was learnt, and the current intervals are kept. The rules:

    * ``crossing``: lengthen adaptive layers by ascending d_l, up to and including the first with 1 − λ_l < δ_l.
    * ``released``: the same, with λ taken over the adaptive layers only, as the paper's released code does.
    * ``printed``: what the paper prints, δ_l < λ_l. It holds almost everywhere (a Lorenz curve); kept for study.
    * ``accelerate``: by *descending* d_l, *shorten* to base_interval / increase_factor, up to and including the first
      with 1 − δ_l < λ_l (§4, for networks where latency is free).

    Arguments:
        discrepancy: d_l of Eq. 2 for every layer.
        sizes: dim(u_l), how many parameters each layer has.
        base_interval: τ', in steps.
        increase_factor: φ, by which an interval is lengthened (or, with "accelerate", divided).
        adaptive: Which layers may be given another interval than τ'; the others count in the totals (default: all).
        current: The intervals so far (default: all at τ').
        rule: Which of the rules above chooses the layers.

    >>> adjust_intervals([4.0, 1.0, 2.0], [10, 80, 10], base_interval=6, increase_factor=4)
    [6, 24, 6]
    """
    check_intervals(base_interval, increase_factor, rule)
    flags = _flags(adaptive, len(sizes))
    check_layers(discrepancy, sizes, flags, current)
    intervals = [base_interval] * len(sizes)
    if not any(discrepancy):
        if current is not None:
            intervals = [int(interval) for interval in current]
        return intervals

    changed = base_interval * increase_factor
    if rule == "accelerate":
        changed = base_interval // increase_factor
    shares = _Shares(discrepancy, sizes, flags)
    choose = _CHOOSERS[rule]
    for layer in choose(shares):
        intervals[layer] = changed
    return intervals


def crossing_curves(
    discrepancy: Sequence[float],
    sizes: Sequence[int],
    adaptive: Sequence[bool] | None = None,
    rule: str = "crossing",
) -> tuple[list[float], list[float]]:
    """Figure 1's two curves, δ_l and 1 − λ_l, along the layers that the rule walks by ascending d_l.

    Arguments:
        discrepancy: d_l of Eq. 2 for every layer.
        sizes: dim(u_l), how many parameters each layer has.
        adaptive: Which layers may be given another interval than τ' (default: all).
        rule: Which of the rules of `adjust_intervals` walks.

    Returns:
        δ_l and 1 − λ_l, each with one number per layer that is walked.
    """
    check_variant(rule)
    flags = _flags(adaptive, len(sizes))
    check_layers(discrepancy, sizes, flags, None)

    shares = _Shares(discrepancy, sizes, flags)
    walked: Sequence[int] = shares.adaptive
    if rule == "printed":
        walked = range(len(sizes))
    if not shares.total_mass:
        zeros = [0.0] * len(walked)
        return zeros, list(zeros)
    total = shares.total_size
    if rule == "released":
        total = shares.adaptive_size

    deltas: list[float] = []
    kept: list[float] = []
    order = shares.ascending(walked)
    for _, delta, lam in _walk(order, shares, total):
        deltas.append(float(delta))
        kept.append(1 - float(lam))
    return deltas, kept


def _flags(adaptive: Sequence[bool] | None, count: int) -> list[bool]:
    if adaptive is None:
        return [True] * count
    return [bool(flag) for flag in adaptive]


class _Shares:
    """Exact sums over the layers: the mass of a layer is d_l · dim(u_l)."""

    def __init__(
        self,
        discrepancy: Sequence[float],
        sizes: Sequence[int],
        adaptive: Sequence[bool],
    ) -> None:
        self.discrepancy: list[float] = []
        self.sizes: list[int] = []
        self.mass: list[Fraction] = []
        self.adaptive: list[int] = []
        self.total_mass = Fraction(0)  # D: over all layers, in every rule
        self.total_size = 0  # N
        self.adaptive_size = 0
        for layer, is_adaptive in enumerate(adaptive):
            # Numpy's numbers become Python's, which have no overflow and are exact as fractions.
            d = float(discrepancy[layer])
            size = int(sizes[layer])
            mass = Fraction(d) * size

            self.discrepancy.append(d)
            self.sizes.append(size)
            self.mass.append(mass)
            self.total_mass += mass
            self.total_size += size
            if is_adaptive:
                self.adaptive.append(layer)
                self.adaptive_size += size

    def ascending(self, layers: Sequence[int]) -> list[int]:
        # Sorting is stable: ties stay in layer order.
        return sorted(layers, key=lambda layer: self.discrepancy[layer])

    def descending(self, layers: Sequence[int]) -> list[int]:
        # Not the other list reversed: ties stay in layer order here, too.
        return sorted(layers, key=lambda layer: -self.discrepancy[layer])


def _walk(
    order: Sequence[int], shares: _Shares, total_size: int
) -> Iterator[tuple[int, Fraction, Fraction]]:
    """The layers in this order, each with δ and λ: the shares that it and the layers before it hold."""
    mass = Fraction(0)
    size = 0
    for layer in order:
        mass += shares.mass[layer]
        size += shares.sizes[layer]
        delta = mass / shares.total_mass
        lam = Fraction(size, total_size)
        yield layer, delta, lam


def _until(
    order: Sequence[int],
    shares: _Shares,
    total_size: int,
    crossed: Callable[[Fraction, Fraction], bool],
) -> set[int]:
    """The layers that are walked up to and including the first where `crossed(δ, λ)`."""
    chosen: set[int] = set()
    for layer, delta, lam in _walk(order, shares, total_size):
        chosen.add(layer)
        if crossed(delta, lam):
            break
    return chosen


def _risks_more(delta: Fraction, lam: Fraction) -> bool:
    """Whether more discrepancy may grow than communication is left to save: 1 − λ_l < δ_l."""
    return 1 - lam < delta


def _crossing(shares: _Shares) -> set[int]:
    order = shares.ascending(shares.adaptive)
    return _until(
        order,
        shares,
        total_size=shares.total_size,
        crossed=_risks_more,
    )


def _released(shares: _Shares) -> set[int]:
    order = shares.ascending(shares.adaptive)
    return _until(
        order,
        shares,
        total_size=shares.adaptive_size,
        crossed=_risks_more,
    )


def _printed(shares: _Shares) -> set[int]:
    chosen: set[int] = set()
    every_layer = range(len(shares.sizes))
    order = shares.ascending(every_layer)
    for layer, delta, lam in _walk(order, shares, shares.total_size):
        is_adaptive = layer in shares.adaptive
        if is_adaptive and delta < lam:
            chosen.add(layer)
    return chosen


def _accelerate(shares: _Shares) -> set[int]:
    order = shares.descending(shares.adaptive)
    return _until(
        order,
        shares,
        total_size=shares.total_size,
        crossed=lambda delta, lam: 1 - delta < lam,
    )


_CHOOSERS: dict[str, Callable[[_Shares], set[int]]] = {
    "crossing": _crossing,
    "released": _released,
    "printed": _printed,
    "accelerate": _accelerate,
}
