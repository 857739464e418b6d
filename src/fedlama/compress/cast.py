"""Shorter floats: half the bytes for a relative error of 2⁻⁸ (bfloat16) or 2⁻¹¹ (float16).

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
            exponent = _exponent_for(float(x.abs().max()))
            head = struct.pack("<b", exponent)
            x = x * 2.0**exponent
        largest = torch.finfo(self._type).max
        clipped = x.clamp(-largest, largest)
        short = clipped.to(self._type).reshape(-1)
        numbers = short.view(torch.uint8).numpy()
        return Coded(side=head + numbers.tobytes())

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """All numbers."""
        head = side.take(self._head)
        numbers = side.take(math.prod(shape) * self._type.itemsize)
        coded = Coded(side=head + numbers)
        check_finite(self._values(coded))
        return coded

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """Back to float32."""
        return self._values(coded).reshape(shape)

    def _values(self, coded: Coded) -> Tensor:
        # bytearray: torch wants memory that it may write to
        numbers = bytearray(coded.side[self._head :])
        values = torch.frombuffer(numbers, dtype=self._type).float()
        if self.dtype == "float16":
            (exponent,) = struct.unpack("<b", coded.side[:1])
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
    if largest == 0 or SMALL_FOR_HALF <= largest <= LARGEST_HALF:
        return 0
    _, exponent = math.frexp(largest)  # largest < 2^exponent
    return min(max(TOP - exponent, -MAX_EXPONENT), MAX_EXPONENT)
