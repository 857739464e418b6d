"""Shorter floats: half the bytes for a relative error of 2⁻⁸ (bfloat16) or 2⁻¹¹ (float16).

There is no paper behind it: these are the formats themselves, bfloat16 and IEEE 754's binary16.

Numbers go to the nearest short float, so the error is tiny but not unbiased: equal numbers err alike on all clients.

bfloat16 keeps float32's range. float16 ends at 65,504 and loses digits below 6·10⁻⁵, where the differences of a model
often are. A tensor that does not fit is multiplied by a power of two before it is rounded, which costs no digit; the
exponent travels with it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlama.base import check_options
from fedlama.compress.codec import Codec
from fedlama.compress.coded import Coded, Shape
from fedlama.compress.framing import Reader
from fedlama.compress.limits import DType
from fedlama.compress.numbers import check_finite

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
LARGEST_HALF = torch.finfo(torch.float16).max
# Below this, the fixed spacing of float16's smallest numbers, 2⁻²⁴, would err more than its eleven digits do.
SMALL_FOR_HALF = 2.0**-10
TOP = 15  # the exponent of two that a scaled tensor's largest number gets, at most
# So that its factor and the factor's inverse are float32 numbers of full precision
MAX_EXPONENT = 120


@dataclass(frozen=True)
class Cast(Codec):
    """Round every number to the nearest shorter float.

    Arguments:
        dtype: "bfloat16", "float16", or "float32" for no rounding at all.
    """

    dtype: DType = "bfloat16"

    def __post_init__(self) -> None:
        check_options(self)

    def code(
        self,
        x: Tensor,
        *,
        key: int,
        bits: float | None = None,
        warm: Tensor | None = None,
    ) -> Coded:
        """Two or four bytes per number; with float16 first the exponent, one byte."""
        head = b""
        if self.dtype == "float16":
            largest = float(x.abs().max())
            exponent = _exponent_for(largest)
            head = struct.pack("<b", exponent)
            x = x * 2.0**exponent
        # Float32's largest numbers would be rounded to infinity
        limit = torch.finfo(self._type).max
        clipped = x.clamp(-limit, limit)
        short = clipped.to(self._type).reshape(-1)
        as_bytes = short.view(torch.uint8).numpy()
        numbers = as_bytes.tobytes()
        return Coded(side=head + numbers)

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """All numbers."""
        count = math.prod(shape)
        head = side.take(self._head)
        numbers = side.take(count * self._type.itemsize)
        coded = Coded(side=head + numbers)
        # A forged message may hold infinities, which no sender codes
        values = self._values(coded)
        check_finite(values)
        return coded

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """Back to float32."""
        values = self._values(coded)
        return values.reshape(shape)

    def _values(self, coded: Coded) -> Tensor:
        head = coded.side[: self._head]
        # A bytearray: torch wants memory that it may write to
        numbers = bytearray(coded.side[self._head :])
        short = torch.frombuffer(numbers, dtype=self._type)
        values = short.float()
        if self.dtype == "float16":
            (exponent,) = struct.unpack("<b", head)
            values *= 2.0**-exponent
        return values

    @property
    def _head(self) -> int:
        """Bytes before the numbers."""
        if self.dtype == "float16":
            return 1
        return 0

    @property
    def _type(self) -> torch.dtype:
        return TYPES[self.dtype]


def _exponent_for(largest: float) -> int:
    """By which power of two a tensor with this largest magnitude is multiplied: none, if it fits as it is."""
    fits = SMALL_FOR_HALF <= largest <= LARGEST_HALF
    if largest == 0 or fits:
        return 0
    # largest < 2^exponent
    _, exponent = math.frexp(largest)
    wanted = TOP - exponent
    return min(max(wanted, -MAX_EXPONENT), MAX_EXPONENT)
