"""A uniform quantiser for numbers that are normal: j = round(y/(Δσ)), and what the codes cost under the normal law.

Everything that is asked of the codes (their length, ⟨y, j⟩, ‖j‖²) is computed on the way, while they are in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedlama.compress.blocks import MAX_JOINT
from fedlama.compress.limits import MAX_BITS, MIN_BITS
from fedlama.compress.normal import (
    INDICES_PER_OCTAVE,
    MAX_INDEX,
    index_for,
    largest_symbol,
    step_of,
    table,
)
from fedlama.compress.numbers import SLAB, NotCodableError, squared_norm
from fedlama.compress.scratch import lasting_tensor

# Σ|j| below which the step is halved: with fewer, a tiny tensor's scale would be a lottery
LEAST_CODES = 8
# Chance lets the length at a given step vary, by a per cent for 100,000 numbers. From this size on the step is
# corrected until the length is right, with the bytes around the symbols counted as far as they are a small share of
# it.
# Tensors that are rotated with others are smaller: so a code does not depend on its company.
RATE_IS_MET = MAX_JOINT + 1
RATE_TOLERANCE = 0.002
CORRECTIONS = 4
FRAME, FRAME_SHARE = 16, 0.015
# Symbols that are looked up as one, and entries of such a table
MAX_TOGETHER, MAX_ROWS = 4, 1 << 17
TOO_SMALL = 1e-35  # a standard deviation that float32 cannot divide by


@dataclass(frozen=True)
class Quantised:
    """Codes of one tensor, and what is known of them."""

    index: int  # of the step
    codes: Tensor
    bits: float
    square: float  # ‖y‖²
    product: float  # ⟨y, j⟩
    energy: float  # ‖j‖²


def quantised(y: Tensor, rate: float, count: int) -> Quantised | None:
    """The codes of one tensor at about this rate; None if there is nothing to code.

    Arguments:
        y: Its numbers, rotated.
        rate: Bits per number.
        count: How many numbers there are without padding.
    """
    square = squared_norm(y)
    _check_energy(square)
    sigma = math.sqrt(square / len(y))
    if sigma < TOO_SMALL:
        return None
    index = index_for(rate)
    codes = lasting_tensor(len(y))  # one for all attempts: the last one counts
    result = _attempt(y, square, sigma, index, codes)
    if count >= RATE_IS_MET:
        budget = rate * count
        budget -= min(8 * FRAME, FRAME_SHARE * budget)
        aim = rate
        for _ in range(CORRECTIONS):
            if abs(result.bits - budget) < RATE_TOLERANCE * budget:
                break
            aim *= budget / result.bits
            aim = min(max(aim, MIN_BITS / 2), MAX_BITS)
            index = index_for(aim)
            result = _attempt(y, square, sigma, index, codes)
    while _are_too_few(result) and index + INDICES_PER_OCTAVE <= MAX_INDEX:
        index += INDICES_PER_OCTAVE
        result = _attempt(y, square, sigma, index, codes)
    return result


def quantised_together(
    y: Tensor,
    sizes: Sequence[int],
    block: int,
    rates: Sequence[float],
    counts: Sequence[int],
) -> list[Quantised | None]:
    """`quantised` for each of several tensors that lie one behind the other, to the same bits.

    Arguments:
        y: The numbers of all of them, rotated.
        sizes: How many numbers each tensor has, padding included; below `RATE_IS_MET`, so that no step has to be
            corrected.
        block: A number that divides all sizes.
        rates: Bits per number of each.
        counts: How many numbers each has without padding.
    """
    exact = y.double().split(list(sizes))
    squares: list[float] = []
    factors: list[float] = []
    indices = [index_for(rate) for rate in rates]
    for part, index in zip(exact, indices, strict=True):
        square = float(torch.dot(part, part))
        _check_energy(square)
        sigma = math.sqrt(square / len(part))
        factor = 0.0
        if sigma >= TOO_SMALL:
            factor = 1 / (step_of(index) * sigma)
        squares.append(square)
        factors.append(factor)

    blocks = torch.tensor([size // block for size in sizes])
    codes = y.view(-1, block) * _per_block(factors, blocks)
    codes.round_()
    lengths = _clipped(codes, indices, blocks, sizes)

    result: list[Quantised | None] = []
    codes = codes.view(-1)
    whole = codes.double().split(list(sizes))
    parts = zip(
        codes.split(list(sizes)),
        exact,
        whole,
        indices,
        squares,
        factors,
        lengths,
        strict=True,
    )
    for own, (symbols, numbers, integers, index, square, factor, bits) in enumerate(
        parts
    ):
        if factor == 0.0:
            result.append(None)
            continue
        product = float(torch.dot(numbers, integers))
        energy = float(torch.dot(integers, integers))
        one: Quantised | None = Quantised(index, symbols, bits, square, product, energy)
        if _are_too_few(one):
            start = sum(sizes[:own])
            one = quantised(y[start : start + sizes[own]], rates[own], counts[own])
        result.append(one)
    return result


def _clipped(
    codes: Tensor, indices: Sequence[int], blocks: Tensor, sizes: Sequence[int]
) -> list[float]:
    """Keep the codes of each tensor, blocks in rows, to the symbols of its table, in place; what they cost in bits."""
    different = sorted(set(indices))
    if len(different) == 1:
        costs, places = _clipped_to_one_table(codes, different[0])
    else:
        costs, places = _clipped_to_tables(codes, indices, blocks)
    bits = costs.index_select(0, places.view(-1))
    of_tensors = bits.double().split(list(sizes))
    return [float(part.sum()) for part in of_tensors]


def _clipped_to_one_table(codes: Tensor, index: int) -> tuple[Tensor, Tensor]:
    """Clip codes that share a table, in place; what its symbols cost, and where each code is looked up there."""
    largest = largest_symbol(index)
    codes.clamp_(-largest, largest)
    places = (codes + largest).to(torch.int32)
    return table(index).costs, places


def _clipped_to_tables(
    codes: Tensor, indices: Sequence[int], blocks: Tensor
) -> tuple[Tensor, Tensor]:
    """Clip the codes of each tensor to its own table, in place; all costs, and where each code is looked up there."""
    # All tables one behind the other: each code is looked up at its table's middle, and from there.
    middle_of: dict[int, int] = {}
    tables: list[Tensor] = []
    start = 0
    for index in sorted(set(indices)):
        of_index = table(index).costs
        tables.append(of_index)
        middle_of[index] = start + largest_symbol(index)
        start += len(of_index)

    largest = [largest_symbol(index) for index in indices]
    limits = _per_block(largest, blocks)
    torch.minimum(codes, limits, out=codes)
    torch.maximum(codes, -limits, out=codes)

    of_tensors = [middle_of[index] for index in indices]
    middles = _per_block(of_tensors, blocks)
    places = (codes + middles).to(torch.int32)
    return torch.cat(tables), places


def _per_block(values: Sequence[float], blocks: Tensor) -> Tensor:
    """A column with the value of each block's tensor, given how many blocks each tensor has."""
    column = torch.tensor(values, dtype=torch.float32)
    return column.repeat_interleave(blocks)[:, None]


def _attempt(
    y: Tensor, square: float, sigma: float, index: int, codes: Tensor
) -> Quantised:
    """The codes at one step, written into `codes`."""
    factor = 1 / (step_of(index) * sigma)
    largest = largest_symbol(index)
    costs = _joint_costs(index)
    bits = 0.0
    product = 0.0
    energy = 0.0
    for numbers, symbols in zip(y.split(SLAB), codes.split(SLAB), strict=True):
        torch.mul(numbers, factor, out=symbols)
        symbols.round_()
        symbols.clamp_(-largest, largest)
        bits += costs.of(symbols)
        exact_symbols = symbols.double()
        exact_numbers = numbers.double()
        product += float(torch.dot(exact_numbers, exact_symbols))
        energy += float(torch.dot(exact_symbols, exact_symbols))
    return Quantised(index, codes, bits, square, product, energy)


@dataclass(frozen=True)
class _JointCosts:
    """What neighbouring symbols cost together: to look them up one by one would take longer than to round them.

    Arguments:
        bits: The costs of all rows of so many symbols: float64 sums of float32 costs, which are exact. So is the sum
            of a slab of them, in whatever order: they have digits to spare.
        weights: What turns a row of symbols into its place, beside the offset; as many as a row has symbols, a power
            of two.
        offset: The place of a row of zeros.
    """

    bits: Tensor
    weights: Tensor
    offset: int

    def of(self, symbols: Tensor) -> float:
        """The bits of all of these."""
        width = len(self.weights)
        missing = -len(symbols) % width
        surplus = 0.0
        if missing:
            symbols = pad(symbols, (0, missing))
            row_of_zeros = float(self.bits[self.offset])
            surplus = missing * row_of_zeros / width
        rows = symbols.view(-1, width)
        places = torch.mv(rows, self.weights)
        places += self.offset
        bits = self.bits.index_select(0, places.to(torch.int32))
        total = float(bits.sum())
        return total - surplus


@lru_cache(maxsize=32)
def _joint_costs(index: int) -> _JointCosts:
    """For as many symbols together as leave the table small."""
    bits = table(index).costs.double()
    weights = [1.0]
    offset = largest_symbol(index)
    while len(weights) < MAX_TOGETHER and len(bits) ** 2 <= MAX_ROWS:
        # All pairs of such rows: the first one counts in units of all that the second may be.
        rows = len(bits)
        pairs = bits[:, None] + bits
        bits = pairs.view(-1)
        of_the_first = [rows * weight for weight in weights]
        weights = of_the_first + weights
        offset += rows * offset
    return _JointCosts(bits, torch.tensor(weights), offset)


def _check_energy(square: float) -> None:
    """Refuse numbers so near to float32's end that their rotation, whose sums are larger, has left it."""
    if not math.isfinite(square):
        raise NotCodableError("the numbers are too large to be coded")


def _are_too_few(result: Quantised) -> bool:
    """Σ|j| < 8, which can only be if Σj² < 64."""
    if result.energy >= LEAST_CODES**2:
        return False
    return float(result.codes.abs().sum()) < LEAST_CODES
