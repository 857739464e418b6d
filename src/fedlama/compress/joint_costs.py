"""What several symbols cost together: one look into a large table in place of several into a small one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedlama.compress.normal import largest_symbol, table

MAX_TOGETHER = 4  # symbols that are looked up as one
MAX_ROWS = 1 << 17  # entries of such a table


@dataclass(frozen=True)
class JointCosts:
    """What neighbouring symbols cost together: to look them up one by one would take longer than to round them.

    Arguments:
        bits: The costs of all rows of so many symbols: float64 sums of float32 costs, which are exact. So is the sum
            of a slab of them, in whatever order: they have digits to spare.
        factors: What turns a row of symbols into its index, beside the offset; as many as a row has symbols, a power
            of two.
        offset: The index of a row of zeros.
    """

    bits: Tensor
    factors: Tensor
    offset: int

    def of(self, symbols: Tensor) -> float:
        """The bits of all of these.

        Arguments:
            symbols: Whole numbers as floats, none larger than the table's largest.
        """
        width = len(self.factors)
        missing = -len(symbols) % width
        surplus = 0.0
        if missing:
            # Zeros fill up the last row, and are not sent
            symbols = pad(symbols, (0, missing))
            row_of_zeros = float(self.bits[self.offset])
            surplus = missing * row_of_zeros / width

        rows = symbols.view(-1, width)
        indices = torch.mv(rows, self.factors)
        indices += self.offset
        indices = indices.to(torch.int32)
        bits = self.bits.index_select(0, indices)
        total = float(bits.sum())
        return total - surplus


@lru_cache(maxsize=32)
def joint_costs(index: int) -> JointCosts:
    """For as many symbols together as leave the table small.

    Arguments:
        index: Of the step, which says how often each symbol is.
    """
    bits = table(index).costs.double()
    factors = [1.0]
    offset = largest_symbol(index)
    while len(factors) < MAX_TOGETHER:
        rows = len(bits)
        if rows**2 > MAX_ROWS:
            break
        # All pairs of such rows: the first one counts in units of all that the second may be.
        pairs = bits[:, None] + bits
        bits = pairs.view(-1)
        of_the_first = [rows * factor for factor in factors]
        factors = of_the_first + factors
        offset += rows * offset
    return JointCosts(bits, torch.tensor(factors), offset)
