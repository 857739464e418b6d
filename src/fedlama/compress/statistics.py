"""BatchNorm's statistics as numbers that may be coded: without a unit, and such that a variance stays positive.

A running variance travels as the difference of its logarithm to the anchor's, a running mean as its difference in
standard deviations of the anchor. What a norm divides by is that standard deviation, so both errors mean the same to
the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedlama.base import InputError
from fedlama.core import Layout

# What torch's norms add to a variance: anything below makes no difference
VARIANCE_FLOOR = 1e-5
MAX_LOG_RATIO = 20.0  # a variance changes at most by e²⁰ in one message


class Statistics:
    """Where the statistics of a layout are in a row, and which of them are means and variances."""

    def __init__(self, layout: Layout) -> None:
        self.size = layout.statistics_size
        self.index = torch.zeros(self.size, dtype=torch.int64)
        self._is_variance = torch.zeros(self.size, dtype=torch.bool)
        # For each number of a mean, where its variance is among the statistics; −1 elsewhere.
        self._spread_of = torch.full((self.size,), -1)
        # One statistics tensor after the other, as in the row, but without the padding between them
        start = 0
        for number, place in enumerate(layout.statistics):
            size = place.stop - place.start
            stop = start + size
            mine = slice(start, stop)
            self.index[mine] = torch.arange(place.start, place.stop)
            role = layout.roles[number]
            self._is_variance[mine] = role == "variance"
            if _is_followed_by_its_variance(layout, number):
                # The variances come next, and are as many
                self._spread_of[mine] = torch.arange(stop, stop + size)
            start = stop

        has_spread = self._spread_of >= 0
        in_units = has_spread | self._is_variance
        self.needs_anchor = bool(in_units.any())

    def to_codable(self, difference: Tensor, anchor: Tensor | None) -> Tensor:
        """From a row of differences: the statistics' changes in units that a code may mix."""
        changes = difference.index_select(0, self.index)
        if not self.needs_anchor:
            return changes
        base = self._base(anchor)
        floor = base.clamp(min=VARIANCE_FLOOR)
        changed = base + changes
        variances = changed.clamp(min=VARIANCE_FLOOR)
        ratios = variances / floor
        log_ratios = ratios.log()
        in_deviations = changes / self._units(base)
        return torch.where(self._is_variance, log_ratios, in_deviations)

    def from_codable(self, codable: Tensor, anchor: Tensor | None) -> Tensor:
        """The statistics' changes in their own units."""
        if not self.needs_anchor:
            return codable
        base = self._base(anchor)
        floor = base.clamp(min=VARIANCE_FLOOR)
        # A code errs, and an exponential must not make an infinite variance of that
        log_ratios = codable.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratios = log_ratios.exp()
        variances = floor * ratios
        of_variances = variances.clamp(min=VARIANCE_FLOOR) - base
        of_means = codable * self._units(base)
        return torch.where(self._is_variance, of_variances, of_means)

    def _base(self, anchor: Tensor | None) -> Tensor:
        if anchor is None:
            raise InputError(
                "the statistics of this model can only be coded beside their anchor"
            )
        return anchor.index_select(0, self.index)

    def _units(self, base: Tensor) -> Tensor:
        """√variance where a mean has one, 1 elsewhere."""
        variances = base.clamp(min=VARIANCE_FLOOR)
        deviations = variances.sqrt()
        # An index must not be negative; what is read for those without a variance is replaced
        places = self._spread_of.clamp(min=0)
        units = deviations.index_select(0, places)
        has_none = self._spread_of < 0
        units[has_none] = 1.0
        return units


def _is_followed_by_its_variance(layout: Layout, number: int) -> bool:
    """Whether these are running means and the next statistics are the variances of the same features."""
    pair = slice(number, number + 2)
    if layout.roles[pair] != ("mean", "variance"):
        return False
    mean, variance = layout.statistics[pair]
    means = mean.stop - mean.start
    variances = variance.stop - variance.start
    return means == variances
