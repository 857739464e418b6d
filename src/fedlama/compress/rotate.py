"""Rotation, uniform quantiser, entropy coder: the "EE" code of S. Vargaftik, R. Ben Basat, A. Portnoy, G. Mendelson,
Y. Ben-Itzhak, M. Mitzenmacher, "EDEN: Communication-Efficient and Robust Distributed Mean Estimation for Federated
Learning", ICML 2022 (arXiv 2108.08842), section 4.3, at any rate from 0.1 to 8 bits per number.

A random rotation makes the numbers normal, whatever they were. Rounding them to multiples of a step then has known
probabilities, so the entropy coder needs no histogram, and the error has no preferred direction, so that it averages
out over clients. Rotations follow from the key; nothing is sent for them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedlama.base import InputError, check_options, shown
from fedlama.compress.blocks import Blocks, together
from fedlama.compress.codec import Codec
from fedlama.compress.coded import Coded, Shape
from fedlama.compress.framing import Reader
from fedlama.compress.limits import (
    DEFAULT_SMALL_BITS,
    MAX_BITS,
    MIN_BITS,
    Allocation,
    Bits,
    Scaling,
)
from fedlama.compress.normal import MAX_INDEX, distortion, distortion_at, table
from fedlama.compress.numbers import NotCodableError
from fedlama.compress.rotation import Rotations
from fedlama.compress.streams import Run
from fedlama.compress.uniform import Quantised, quantised, quantised_together

T = TypeVar("T")

EMPTY = 0xFFFF  # in place of a step's index: all numbers are zero, nothing follows


@dataclass(frozen=True)
class Rotate(Codec):
    """Rotate by the key's random signs and permutation, round to multiples of one step, code by entropy.

    Arguments:
        bits: Bits per number, any real number from 0.1 to 8.
        allocation: How a message shares bits among its layers. "uniform" gives each this rate. "water" takes one
            absolute step for all of them that meets the same total, which gives more to layers that moved further
            (reverse water-filling).
        small_bits: The rate of the groups of small tensors and statistics, also 0.1 to 8.
        scale: "unbiased", so that errors average out over clients, or "least_squares" for the smallest error, which
            `ErrorFeedback` chooses by itself.
    """

    bits: Bits
    allocation: Allocation = "uniform"
    small_bits: Bits = DEFAULT_SMALL_BITS
    scale: Scaling = "unbiased"

    def __post_init__(self) -> None:
        check_options(self)
        # 1 and 1.0 are the same code, under one checksum
        object.__setattr__(self, "bits", float(self.bits))
        object.__setattr__(self, "small_bits", float(self.small_bits))

    def code(
        self,
        x: Tensor,
        *,
        key: int,
        bits: float | None = None,
        warm: Tensor | None = None,
    ) -> Coded:
        """j = round(y/(Δσ)) of the rotated numbers y, and the scale S that multiplies j."""
        (coded,) = self.code_all([x], keys=[key], bits=[bits], warm=[warm])
        return coded

    def code_all(
        self,
        tensors: Sequence[Tensor],
        *,
        keys: Sequence[int],
        bits: Sequence[float | None],
        warm: Sequence[Tensor | None],
    ) -> list[Coded]:
        """Rotated and rounded together: on tensors of some thousand numbers, calls cost more than the arithmetic."""
        rates: list[float] = []
        counts: dict[int, int] = {}  # of what is sent
        for number, x in enumerate(tensors):
            rate = bits[number]
            if rate is None:
                rate = self.bits
            rates.append(rate)
            if rate > 0:
                counts[number] = x.numel()

        coded = [_nothing() for _ in tensors]
        for batch in together(counts):
            results = _rotated_and_rounded(
                _chosen(tensors, batch),
                keys=_chosen(keys, batch),
                rates=_chosen(rates, batch),
            )
            for number, result in zip(batch, results, strict=True):
                coded[number] = self._coded(result)
        return coded

    def _coded(self, result: Quantised | None) -> Coded:
        """The step's index, the scale and the symbols."""
        if result is None:
            return _nothing()
        if self.scale == "unbiased":
            scale = result.square / result.product  # EDEN: S = ‖y‖²/⟨y, j⟩
        else:
            scale = result.product / result.energy  # S = ⟨y, j⟩/‖j‖²
        single = float(np.float32(scale))
        if not math.isfinite(single):
            raise NotCodableError("the numbers are too large to be coded")
        if single <= 0:
            return _nothing()
        run = Run(
            table(result.index), len(result.codes), result.codes, known_bits=result.bits
        )
        return Coded(side=struct.pack("<Hf", result.index, single), runs=[run])

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """The step's index, the scale, then the symbols of all numbers, those of the padding included."""
        head = side.take(2)
        (index,) = struct.unpack("<H", head)
        if index == EMPTY:
            return _nothing()
        if index > MAX_INDEX:
            raise InputError(
                f"the rate must be {MIN_BITS} to {MAX_BITS} bits per number: there is no step {index}"
            )
        tail = side.take(4)
        (scale,) = struct.unpack("<f", tail)
        if not math.isfinite(scale) or scale <= 0:
            raise InputError(
                f"the scale must be finite and above 0, not {shown(scale)}"
            )
        padded = Blocks.of(math.prod(shape)).padded
        return Coded(side=head + tail, runs=[Run(table(index), padded)])

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """S times the rotation undone."""
        (x,) = self.rebuild_all([coded], [shape], keys=[key])
        return x

    def rebuild_all(
        self, coded: Sequence[Coded], shapes: Sequence[Shape], *, keys: Sequence[int]
    ) -> list[Tensor]:
        """Rotations undone together, to the same bits: sums of whole numbers are exact."""
        rebuilt: dict[int, Tensor] = {}
        counts: dict[int, int] = {}  # of what was sent
        for number, shape in enumerate(shapes):
            was_sent = bool(coded[number].runs)
            if was_sent:
                counts[number] = math.prod(shape)
            else:
                rebuilt[number] = torch.zeros(shape)

        for batch in together(counts):
            flat = _rotated_back(
                _chosen(coded, batch),
                keys=_chosen(keys, batch),
                counts=tuple(counts[number] for number in batch),
            )
            for number, x in zip(batch, flat, strict=True):
                shape = shapes[number]
                rebuilt[number] = x.reshape(shape)
        # In the order of the tensors, not of the batches
        return [rebuilt[number] for number in range(len(shapes))]

    @property
    def rate(self) -> float:
        """Bits per number."""
        return self.bits

    @property
    def sharing(self) -> str:
        """Uniform or by water-filling."""
        return self.allocation

    def kept(self, bits: float | None = None) -> float:
        """1, or 1 − D with the least-squares scale."""
        if self.scale == "unbiased":
            return 1.0
        rate = bits
        if rate is None:
            rate = self.bits
        if rate <= 0:
            return 0.0
        return 1.0 - distortion(rate)

    def kept_of(self, coded: Coded) -> float:
        """By the step that was used."""
        if not coded.runs:
            return 0.0
        if self.scale == "unbiased":
            return 1.0
        (index,) = struct.unpack("<H", coded.side[:2])
        return 1.0 - distortion_at(index)

    def under_feedback(self) -> Rotate:
        """The scale with the smallest error."""
        return replace(self, scale="least_squares")

    def for_small_tensors(self) -> Rotate:
        """At the rate of the small."""
        return replace(self, bits=self.small_bits)


def _nothing() -> Coded:
    return Coded(side=struct.pack("<H", EMPTY))


def _chosen(values: Sequence[T], numbers: Sequence[int]) -> list[T]:
    """Those of the values that have these numbers."""
    return [values[number] for number in numbers]


def _rotated_and_rounded(
    tensors: Sequence[Tensor], *, keys: Sequence[int], rates: Sequence[float]
) -> list[Quantised | None]:
    """The codes of tensors that are rotated as one."""
    counts = tuple(x.numel() for x in tensors)
    rotations = Rotations.of(counts)
    flat = [x.reshape(-1) for x in tensors]
    y = rotations.forward(flat, keys)
    if len(tensors) == 1:
        # A large tensor is always alone, and only its step is corrected until the length is right
        return [quantised(y, rates[0], counts[0])]
    return quantised_together(
        y,
        rotations.sizes,
        rotations.block,
        rates,
        counts,
    )


def _rotated_back(
    coded: Sequence[Coded], *, keys: Sequence[int], counts: tuple[int, ...]
) -> list[Tensor]:
    """The numbers of tensors that were rotated as one, each in a row."""
    rotations = Rotations.of(counts)
    symbols = _symbols(coded)
    scales = [_scale(one) for one in coded]
    return rotations.backward(symbols, scales, keys)


def _scale(coded: Coded) -> float:
    _, scale = struct.unpack("<Hf", coded.side)
    return scale


def _symbols(coded: Sequence[Coded]) -> Tensor:
    """The symbols of all of these, one behind the other."""
    symbols: list[Tensor] = []
    for one in coded:
        own = one.runs[0].symbols
        assert own is not None
        symbols.append(own)
    if len(symbols) == 1:
        return symbols[0]
    return torch.cat(symbols)
