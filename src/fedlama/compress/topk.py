"""The largest numbers only: S. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with Memory", NeurIPS 2018
(arXiv 1809.07599). What is left out is lost unless error feedback keeps it.

Positions are coded, not listed: k of n cost about n·H₂(k/n) bits, 5.7 per kept number at 5 % instead of 32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedlama.base import InputError, Limits, check_options
from fedlama.compress.chain import Projection
from fedlama.compress.coded import Coded, Shape
from fedlama.compress.framing import Reader
from fedlama.compress.streams import Run, Table


@dataclass(frozen=True)
class TopK(Projection):
    """Keep the numbers of largest magnitude.

    Arguments:
        share: How many of them, above 0 and at most 1; at least one number per tensor is kept.
    """

    share: Annotated[float, Limits(above=0, maximum=1)]

    def __post_init__(self) -> None:
        check_options(self)
        object.__setattr__(self, "share", float(self.share))

    def reduce(
        self, x: Tensor, *, key: int, warm: Tensor | None
    ) -> tuple[Coded, Tensor]:
        """Which are kept, as one symbol per number, and their values in order."""
        flat = x.reshape(-1)
        total = len(flat)
        count = self._count(total)
        if count == total:
            return Coded(), flat
        magnitudes = flat.abs()
        largest = torch.topk(magnitudes, count, sorted=False)
        # In the row's order, which the receiver reads off the positions
        places = largest.indices.sort().values
        is_kept = torch.zeros(total)
        is_kept[places] = 1.0
        table = _table(count, total)
        positions = Run(table, total, is_kept)
        return Coded(runs=[positions]), flat[places]

    def expect_reduced(self, side: Reader, shape: Shape) -> Coded:
        """The share is known, so only the positions have to follow."""
        total = math.prod(shape)
        count = self._count(total)
        if count == total:
            return Coded()
        table = _table(count, total)
        positions = Run(table, total)
        return Coded(runs=[positions])

    def reduced_shape(self, shape: Shape) -> Shape:
        """As many as are kept."""
        total = math.prod(shape)
        return (self._count(total),)

    def expand(self, coded: Coded, values: Tensor, shape: Shape) -> Tensor:
        """Zeros where nothing was kept."""
        if not coded.runs:
            return values.reshape(shape)
        kept = coded.runs[0].symbols
        assert kept is not None
        places = kept.nonzero().view(-1)
        if len(places) != len(values):
            raise InputError(
                f"{len(values)} numbers should have been kept, not {len(places)}"
            )
        result = torch.zeros(len(kept))
        result[places] = values
        return result.reshape(shape)

    def _count(self, total: int) -> int:
        return max(1, round(self.share * total))


@lru_cache(maxsize=256)
def _table(count: int, total: int) -> Table:
    """0 where a number is left out, 1 where it is kept."""
    kept = count / total
    probabilities = np.array([1 - kept, kept])
    return Table.of(probabilities, lowest=0)
