"""QSGD: D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
Quantization and Encoding", NeurIPS 2017 (arXiv 1610.02132); on differences of models, as in FedPAQ (A. Reisizadeh et
al., AISTATS 2020, arXiv 1909.13014). With the largest magnitude of a block as its scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedlama.base import InputError, Limits, check_options
from fedlama.compress.codec import Codec
from fedlama.compress.coded import Coded, Shape
from fedlama.compress.draws import generator
from fedlama.compress.framing import Reader
from fedlama.compress.limits import (
    DEFAULT_BLOCK,
    MAX_BLOCK,
    MAX_QUANTIZE_BITS,
    MIN_BLOCK,
    MIN_QUANTIZE_BITS,
)
from fedlama.compress.streams import Run, Table, flat_table

SCALE_BYTES = 4


@dataclass(frozen=True)
class Quantize(Codec):
    """Round every number to one of 2^bits − 1 evenly spaced levels between ± the largest magnitude of its block.

    Arguments:
        bits: 2 to 8. The symbols cost log₂(2^bits − 1) bits each.
        block: How many numbers share a scale of four bytes.
        stochastic: Round up or down at random so that the mean is right, which makes the code unbiased. Otherwise each
            number goes to its nearest level, which errs less; `ErrorFeedback` chooses that by itself.
    """

    bits: Annotated[int, Limits(minimum=MIN_QUANTIZE_BITS, maximum=MAX_QUANTIZE_BITS)]
    block: Annotated[int, Limits(minimum=MIN_BLOCK, maximum=MAX_BLOCK)] = DEFAULT_BLOCK
    stochastic: bool = True

    def __post_init__(self) -> None:
        check_options(self)
        # Numpy's whole numbers are equal to Python's, but not written alike, and the checksum covers how they are
        object.__setattr__(self, "bits", int(self.bits))
        object.__setattr__(self, "block", int(self.block))

    def code(
        self,
        x: Tensor,
        *,
        key: int,
        bits: float | None = None,
        warm: Tensor | None = None,
    ) -> Coded:
        """ξ = ⌊s·x/N + u⌋ with u uniform in [0, 1), N the block's largest magnitude."""
        blocks = self._in_blocks(x.reshape(-1))
        scales = blocks.abs().amax(dim=1)
        # A block of zeros, or of numbers too small to divide by, is sent as zeros.
        smallest = torch.finfo(torch.float32).tiny
        scales[scales < smallest] = 0.0
        divisors = scales.clamp(min=smallest)
        levels = blocks / divisors[:, None] * self._levels
        levels[scales == 0] = 0.0

        if self.stochastic:
            source = generator(key)
            draws = source.random(levels.numel(), dtype="float32")
            levels += torch.from_numpy(draws).view_as(levels)
            levels.floor_()
        else:
            levels.round_()
        # Rounding of s·x/N + u may reach one level too many
        levels.clamp_(-self._levels, self._levels)

        # What fills up the last block is not sent
        count = x.numel()
        symbols = levels.reshape(-1)[:count]
        run = Run(self._table, count, symbols)
        side = scales.numpy().astype("<f4")
        return Coded(side=side.tobytes(), runs=[run])

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """One scale per block, then the symbols of all numbers."""
        # A message holds neither the number of blocks nor that of symbols: the shape tells both
        count = math.prod(shape)
        blocks = self._blocks(count)
        content = side.take(SCALE_BYTES * blocks)
        scales = _floats(content)
        usable = scales.isfinite() & (scales >= 0)
        if not bool(usable.all()):
            raise InputError("a block's scale must be finite and not negative")
        run = Run(self._table, count)
        return Coded(side=content, runs=[run])

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """N·ξ/s."""
        symbols = coded.runs[0].symbols
        assert symbols is not None
        scales = _floats(coded.side)
        steps = scales / self._levels
        blocks = self._in_blocks(symbols)
        blocks = blocks * steps[:, None]
        # Without what fills up the last block
        count = len(symbols)
        values = blocks.reshape(-1)[:count]
        return values.reshape(shape)

    def kept(self, bits: float | None = None) -> float | None:
        """1 if rounded at random; to the nearest level it depends on the numbers."""
        if self.stochastic:
            return 1.0
        return None

    def under_feedback(self) -> Quantize:
        """The nearest level."""
        return replace(self, stochastic=False)

    def _in_blocks(self, values: Tensor) -> Tensor:
        count = len(values)
        blocks = self._blocks(count)
        # A tensor shorter than a block is one by itself, and not filled up
        width = min(self.block, count)
        missing = blocks * width - count
        filled = pad(values, (0, missing))
        return filled.view(blocks, width)

    def _blocks(self, count: int) -> int:
        return -(-count // self.block)

    @property
    def _levels(self) -> int:
        return 2 ** (self.bits - 1) - 1

    @property
    def _table(self) -> Table:
        levels = self._levels
        return flat_table(2 * levels + 1, lowest=-levels)


def _floats(content: bytes) -> Tensor:
    # A bytearray: torch wants memory that it may write to
    writable = bytearray(content)
    return torch.frombuffer(writable, dtype=torch.float32)
