"""A uniform quantiser for numbers that are normal: j = round(y/(Δσ)), and what the codes cost under the normal law.

Everything that is asked of the codes (their length, ⟨y, j⟩, ‖j‖²) is computed on the way, while they are in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedlama.compress.blocks import MAX_JOINT
from fedlama.compress.joint_costs import joint_costs
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
# What a message has around the symbols, in bytes and at most as a share of it
BYTES_AROUND = 16
SHARE_AROUND = 0.015
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
    codes = lasting_tensor(len(y))  # one for all attempts: the last one counts
    result = _attempt(y, square, sigma, index_for(rate), codes)
    if count >= RATE_IS_MET:
        result = _corrected(result, y, sigma, rate, count)
    while _are_too_few(result):
        halved = result.index + INDICES_PER_OCTAVE
        if halved > MAX_INDEX:
            break
        result = _attempt(y, square, sigma, halved, codes)
    return result


def _corrected(
    result: Quantised, y: Tensor, sigma: float, rate: float, count: int
) -> Quantised:
    """The same numbers at another step, whose codes have the length that a rate asks for; written over the first."""
    budget = rate * count
    budget -= min(8 * BYTES_AROUND, SHARE_AROUND * budget)
    tolerance = RATE_TOLERANCE * budget
    aim = rate
    for _ in range(CORRECTIONS):
        excess = result.bits - budget
        if abs(excess) < tolerance:
            break
        aim *= budget / result.bits
        aim = max(aim, MIN_BITS / 2)
        aim = min(aim, MAX_BITS)
        index = index_for(aim)
        result = _attempt(y, result.square, sigma, index, result.codes)
    return result


class _Scaled(NamedTuple):
    """One of several tensors, and the step that its numbers are divided by."""

    rate: float  # bits per number
    unpadded: int
    size: int
    step: int  # its index
    exact: Tensor  # the numbers, in float64
    square: float  # ‖y‖²
    factor: float  # one over the step; zero where there is nothing to code


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
    lengths = list(sizes)
    parts = y.double().split(lengths)
    tensors: list[_Scaled] = []
    for exact, rate, count in zip(parts, rates, counts, strict=True):
        tensors.append(_scaled(exact, rate, count))

    # Rounding and looking up is one operation over all of them.
    blocks = torch.tensor([length // block for length in lengths])
    factors = _per_block([tensor.factor for tensor in tensors], blocks)
    codes = y.view(-1, block) * factors
    codes.round_()
    bits = _clipped(codes, tensors, blocks)

    codes = codes.view(-1)
    symbols = codes.split(lengths)
    integers = codes.double().split(lengths)
    rotated = y.split(lengths)
    result: list[Quantised | None] = []
    for number, tensor in enumerate(tensors):
        if tensor.factor == 0.0:
            result.append(None)
            continue
        own = integers[number]
        one: Quantised | None = Quantised(
            index=tensor.step,
            codes=symbols[number],
            bits=bits[number],
            square=tensor.square,
            product=_dot(tensor.exact, own),
            energy=_dot(own, own),
        )
        if _are_too_few(one):
            # Once more by itself, where its step can be halved
            one = quantised(rotated[number], tensor.rate, tensor.unpadded)
        result.append(one)
    return result


def _scaled(exact: Tensor, rate: float, count: int) -> _Scaled:
    """The step that a rate asks for, in units of the numbers' standard deviation."""
    size = len(exact)
    index = index_for(rate)
    square = _dot(exact, exact)
    _check_energy(square)
    sigma = math.sqrt(square / size)
    factor = 0.0
    if sigma >= TOO_SMALL:
        factor = 1 / (step_of(index) * sigma)
    return _Scaled(rate, count, size, index, exact, square, factor)


def _clipped(codes: Tensor, tensors: Sequence[_Scaled], blocks: Tensor) -> list[float]:
    """Keep the codes of each tensor, blocks in rows, to the symbols of its table, in place; what they cost in bits."""
    indices = [tensor.step for tensor in tensors]
    share_a_table = len(set(indices)) == 1
    if share_a_table:
        costs, places = _clipped_to_one_table(codes, indices[0])
    else:
        costs, places = _clipped_to_tables(codes, indices, blocks)

    bits_of_codes = costs.index_select(0, places.view(-1)).double()
    sizes = [tensor.size for tensor in tensors]
    bits: list[float] = []
    for own in bits_of_codes.split(sizes):
        total = own.sum()
        bits.append(float(total))
    return bits


def _clipped_to_one_table(codes: Tensor, index: int) -> tuple[Tensor, Tensor]:
    """Clip codes that share a table, in place; what its symbols cost, and where each code is looked up there."""
    costs = table(index).costs
    largest = largest_symbol(index)
    codes.clamp_(-largest, largest)
    # The table begins with the smallest symbol.
    from_its_start = codes + largest
    return costs, from_its_start.to(torch.int32)


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
    costs = joint_costs(index)
    bits = 0.0
    product = 0.0
    energy = 0.0
    for numbers, symbols in zip(y.split(SLAB), codes.split(SLAB), strict=True):
        torch.mul(numbers, factor, out=symbols)
        symbols.round_()
        symbols.clamp_(-largest, largest)
        bits += costs.of(symbols)
        exact_symbols = symbols.double()
        product += _dot(numbers.double(), exact_symbols)
        energy += _dot(exact_symbols, exact_symbols)
    return Quantised(index, codes, bits, square, product, energy)


def _dot(a: Tensor, b: Tensor) -> float:
    product = torch.dot(a, b)
    return float(product)


def _check_energy(square: float) -> None:
    """Refuse numbers so near to float32's end that their rotation, whose sums are larger, has left it."""
    if not math.isfinite(square):
        raise NotCodableError("the numbers are too large to be coded")


def _are_too_few(result: Quantised) -> bool:
    """Σ|j| < 8, which can only be if Σj² < 64."""
    if result.energy >= LEAST_CODES**2:
        return False
    return float(result.codes.abs().sum()) < LEAST_CODES
