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

VARIANCE_FLOOR = 1e-5  # what torch's norms add to a variance: anything below makes no difference
MAX_LOG_RATIO = 20.0  # a variance changes at most by e²⁰ in one message


class Statistics:
    """Where the statistics of a layout are in a row, and which of them are means and variances."""

    def __init__(self, layout: Layout) -> None:
        places: list[Tensor] = []
        variances: list[Tensor] = []
        spread_of: list[Tensor] = []  # for each number of a mean, where its variance is among the statistics; else −1
        start = 0
        roles = layout.roles or ("",) * len(layout.statistics)
        for number, (part, role) in enumerate(zip(layout.statistics, roles, strict=True)):
            size = part.stop - part.start
            places.append(torch.arange(part.start, part.stop))
            variances.append(torch.full((size,), role == "variance"))
            followed = role == "mean" and roles[number + 1 : number + 2] == ("variance",)
            if followed and _size(layout.statistics[number + 1]) == size:
                spread_of.append(torch.arange(start + size, start + 2 * size))
            else:
                spread_of.append(torch.full((size,), -1))
            start += size
        self.size = start
        self.index = torch.cat(places) if places else torch.zeros(0, dtype=torch.int64)
        self._is_variance = torch.cat(variances) if variances else torch.zeros(0, dtype=torch.bool)
        self._spread_of = torch.cat(spread_of) if spread_of else torch.zeros(0, dtype=torch.int64)
        self.needs_anchor = bool(self._is_variance.any()) or bool((self._spread_of >= 0).any())

    def to_codable(self, difference: Tensor, anchor: Tensor | None) -> Tensor:
        """From a row of differences: the statistics' changes in units that a code may mix."""
        changes = difference.index_select(0, self.index)
        if not self.needs_anchor:
            return changes
        base = self._base(anchor)
        floor = base.clamp(min=VARIANCE_FLOOR)
        log_ratios = ((base + changes).clamp(min=VARIANCE_FLOOR) / floor).log()
        return torch.where(self._is_variance, log_ratios, changes / self._units(base))

    def from_codable(self, codable: Tensor, anchor: Tensor | None) -> Tensor:
        """The statistics' changes in their own units."""
        if not self.needs_anchor:
            return codable
        base = self._base(anchor)
        floor = base.clamp(min=VARIANCE_FLOOR)
        grown = floor * codable.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        variances = grown.clamp(min=VARIANCE_FLOOR) - base
        return torch.where(self._is_variance, variances, codable * self._units(base))

    def _base(self, anchor: Tensor | None) -> Tensor:
        if anchor is None:
            raise InputError("the statistics of this model can only be coded beside their anchor")
        return anchor.index_select(0, self.index)

    def _units(self, base: Tensor) -> Tensor:
        """√variance where a mean has one, 1 elsewhere."""
        spreads = base.clamp(min=VARIANCE_FLOOR).index_select(0, self._spread_of.clamp(min=0)).sqrt()
        return torch.where(self._spread_of >= 0, spreads, torch.ones(()))


def _size(part: slice) -> int:
    return part.stop - part.start
