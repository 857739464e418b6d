"""Shorter floats: half the bytes for a relative error of 2⁻⁹ (bfloat16) or 2⁻¹² (float16).

bfloat16 keeps float32's range. float16 is more exact between 6·10⁻⁵ and 65,504, and is clipped there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlama.base import check_options
from fedlama.compress.codec import Codec, Coded, Reader, Shape, check_finite
from fedlama.compress.limits import DType


@dataclass(frozen=True)
class Cast(Codec):
    """Round every number to a shorter float.

    Arguments:
        dtype: "bfloat16", "float16", or "float32" for no rounding at all.
    """

    dtype: DType = "bfloat16"

    def __post_init__(self) -> None:
        check_options(self)

    def code(self, x: Tensor, *, key: int, bits: float | None = None, warm: Tensor | None = None) -> Coded:
        """Two or four bytes per number."""
        largest = torch.finfo(self._type).max
        short = x.clamp(-largest, largest).to(self._type)
        return Coded(side=short.reshape(-1).view(torch.uint8).numpy().tobytes())

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """All numbers."""
        coded = Coded(side=side.take(math.prod(shape) * self._type.itemsize))
        check_finite(self._values(coded))
        return coded

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """Back to float32."""
        return self._values(coded).reshape(shape)

    def _values(self, coded: Coded) -> Tensor:
        # bytearray: torch wants memory that it may write to
        return torch.frombuffer(bytearray(coded.side), dtype=self._type).float()

    @property
    def _type(self) -> torch.dtype:
        return {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}[self.dtype]
