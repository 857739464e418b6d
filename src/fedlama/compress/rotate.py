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
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedlama.base import InputError, check_options
from fedlama.compress.codec import Codec, Coded, Reader, Shape, bit_source, generator
from fedlama.compress.limits import DEFAULT_SMALL_BITS, MAX_BITS, MIN_BITS, Allocation, Bits, Scale
from fedlama.compress.normal import (
    INDICES_PER_OCTAVE,
    MAX_INDEX,
    distortion,
    distortion_at,
    index_for,
    largest_symbol,
    step_of,
    table,
)
from fedlama.compress.streams import Run

EMPTY = 0xFFFF  # in place of a step's index: all numbers are zero, nothing follows
MIN_BLOCK, MAX_BLOCK = 64, 1024  # two products with 32 × 32 matrices; larger blocks cost more and mix no better
MAX_JOINT = 1 << 16  # numbers: larger tensors gain nothing from being rotated with others
MAX_CHUNKS = 1 << 18  # entries of a cached permutation: 4 MB with its inverse
LEAST_CODES = 8  # Σ|j| below which the step is halved: with fewer, a tiny tensor's scale would be a lottery
# Chance lets the length at a given step vary, by a per cent for 100,000 numbers. From this size on the step is
# corrected until the length is right, with the bytes around the symbols counted as far as they are a small share of
# it.
RATE_IS_MET = 1 << 16
RATE_TOLERANCE = 0.002
CORRECTIONS = 4
FRAME, FRAME_SHARE = 16, 0.015
TOO_SMALL = 1e-35  # a standard deviation that float32 cannot divide by


@dataclass(frozen=True)
class Rotate(Codec):
    """Rotate by the key's random signs and permutation, round to multiples of one step, code by entropy.

    Arguments:
        bits: Per number; any real number from 0.1 to 8.
        allocation: How a message shares bits among its layers: "uniform" gives each this rate; "water" takes one
            absolute step for all of them that meets the same total, which gives more to layers that moved further
            (reverse water-filling).
        small_bits: The rate of the groups of small tensors and statistics.
        scale: "unbiased", so that errors average out over clients, or "least_squares" for the smallest error, which
            `ErrorFeedback` chooses by itself.
    """

    bits: Bits
    allocation: Allocation = "uniform"
    small_bits: Bits = DEFAULT_SMALL_BITS
    scale: Scale = "unbiased"

    def __post_init__(self) -> None:
        check_options(self)
        object.__setattr__(self, "bits", float(self.bits))  # 1 and 1.0 are the same code, under one checksum
        object.__setattr__(self, "small_bits", float(self.small_bits))

    def code(self, x: Tensor, *, key: int, bits: float | None = None, warm: Tensor | None = None) -> Coded:
        """j = round(y/(Δσ)) of the rotated numbers y, and the scale S that multiplies j."""
        rate = self.bits if bits is None else bits
        if rate <= 0:
            return _nothing()
        y = _Rotation.of(x.numel()).forward(x.reshape(-1), key)
        return self._coded(y, rate, x.numel())

    def code_all(
        self,
        tensors: Sequence[Tensor],
        *,
        keys: Sequence[int],
        bits: Sequence[float | None],
        warm: Sequence[Tensor | None],
    ) -> list[Coded]:
        """Rotated together: on tensors of some thousand numbers, calls cost more than the arithmetic."""
        rotated = _forward_all([x.reshape(-1) for x in tensors], keys)
        coded: list[Coded] = []
        for x, y, planned in zip(tensors, rotated, bits, strict=True):
            rate = self.bits if planned is None else planned
            if rate <= 0:
                coded.append(_nothing())
            else:
                coded.append(self._coded(y, rate, x.numel()))
        return coded

    def _coded(self, y: Tensor, rate: float, count: int) -> Coded:
        """Of `count` numbers that are rotated already."""
        exact = y.double()
        square = float(torch.dot(exact, exact))
        sigma = math.sqrt(square / y.numel())
        if sigma < TOO_SMALL:
            return _nothing()
        index, codes = self._quantised(y, sigma, rate, count)
        product = float(torch.dot(exact, codes.double()))
        if self.scale == "unbiased":
            scale = square / product  # EDEN: S = ‖y‖²/⟨y, j⟩
        else:
            scale = product / float(codes.square().sum(dtype=torch.float64))  # S = ⟨y, j⟩/‖j‖²
        single = float(np.float32(scale))
        if not math.isfinite(single):
            raise InputError("the numbers are too large to be coded")
        if single <= 0:
            return _nothing()
        return Coded(side=struct.pack("<Hf", index, single), runs=[Run(table(index), y.numel(), codes)])

    def _quantised(self, y: Tensor, sigma: float, rate: float, count: int) -> tuple[int, Tensor]:
        """The step's index and the codes j = round(y/(Δσ))."""
        index = index_for(rate)
        codes = _quantise(y, sigma, index)
        if count >= RATE_IS_MET:
            budget = rate * count
            budget -= min(8 * FRAME, FRAME_SHARE * budget)
            aim = rate
            for _ in range(CORRECTIONS):
                needed = Run(table(index), len(codes), codes).bits
                if abs(needed - budget) < RATE_TOLERANCE * budget:
                    break
                aim *= budget / needed
                aim = min(max(aim, MIN_BITS / 2), MAX_BITS)
                index = index_for(aim)
                codes = _quantise(y, sigma, index)
        while float(codes.abs().sum()) < LEAST_CODES and index + INDICES_PER_OCTAVE <= MAX_INDEX:
            index += INDICES_PER_OCTAVE
            codes = _quantise(y, sigma, index)
        return index, codes

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """The step's index, the scale, then the symbols of all numbers, those of the padding included."""
        head = side.take(2)
        (index,) = struct.unpack("<H", head)
        if index == EMPTY:
            return _nothing()
        if index > MAX_INDEX:
            raise InputError(f"the rate must be {MIN_BITS} to {MAX_BITS} bits per number: there is no step {index}")
        tail = side.take(4)
        (scale,) = struct.unpack("<f", tail)
        if not math.isfinite(scale) or scale <= 0:
            raise InputError(f"the scale must be finite and above 0, not {scale!r}")
        padded = _Rotation.of(math.prod(shape)).padded
        return Coded(side=head + tail, runs=[Run(table(index), padded)])

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """S times the rotation undone."""
        if not coded.runs:
            return torch.zeros(shape)
        _, scale = struct.unpack("<Hf", coded.side)
        symbols = coded.runs[0].symbols
        assert symbols is not None
        return _Rotation.of(math.prod(shape)).backward(symbols, scale, key).reshape(shape)

    def rebuild_all(self, coded: Sequence[Coded], shapes: Sequence[Shape], *, keys: Sequence[int]) -> list[Tensor]:
        """Rotations undone together, to the same bits: sums of whole numbers are exact."""
        sent = [place for place, one in enumerate(coded) if one.runs]
        rotations: list[_Rotation] = []
        symbols: list[Tensor] = []
        scales: list[float] = []
        for place in sent:
            codes = coded[place].runs[0].symbols
            assert codes is not None
            rotations.append(_Rotation.of(math.prod(shapes[place])))
            symbols.append(codes)
            scales.append(struct.unpack("<Hf", coded[place].side)[1])
        rebuilt = _backward_all(rotations, symbols, scales, [keys[place] for place in sent])
        values = iter(rebuilt)
        result: list[Tensor] = []
        for one, shape in zip(coded, shapes, strict=True):
            if one.runs:
                result.append(next(values).reshape(shape))
            else:
                result.append(torch.zeros(shape))
        return result

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
        rate = self.bits if bits is None else bits
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


@dataclass(frozen=True, eq=False)
class _Rotation:
    """The orthogonal transform of `count` numbers: shift, permute, random signs, Walsh–Hadamard in blocks.

    The permutation gives every block the same energy, whatever the structure of a kernel, so that one scale is enough.
    It is fixed per length and shifted by a draw of the key; the signs, which make the errors of two clients
    independent, are drawn for every number.
    """

    count: int
    padded: int
    block: int

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(count: int) -> _Rotation:
        """Blocks of the largest power of two that divides the length, so that 9·2^k numbers need no padding."""
        if count < MIN_BLOCK:
            block = 1 << (count - 1).bit_length()
            return _Rotation(count, block, block)
        natural = count & -count
        # Padding of at most a thousandth buys larger blocks for lengths with few factors of two.
        wanted = 1 << (count // 1024).bit_length() >> 1
        wanted = min(max(wanted, MIN_BLOCK), MAX_BLOCK)
        if natural >= wanted:
            return _Rotation(count, count, min(natural, MAX_BLOCK))
        padded = -(-count // wanted) * wanted
        return _Rotation(count, padded, min(padded & -padded, MAX_BLOCK))

    def forward(self, x: Tensor, key: int) -> Tensor:
        """y = WHT(ε ⊙ π(x))/√B."""
        signs, shift = _draws(self.padded, key)
        padded = x
        if self.padded > self.count:
            padded = pad(x, (0, self.padded - self.count))
        order, _ = _permutation(self._chunks)
        shifted = _shifted(padded, shift)
        mixed = self._permuted(shifted, order)
        mixed *= signs
        y = self._transform(mixed)
        y *= 1 / math.sqrt(self.block)
        return y

    def backward(self, codes: Tensor, scale: float, key: int) -> Tensor:
        """π⁻¹(ε ⊙ WHT(j))·S/√B.

        The codes are whole numbers and so are all sums of them: float32 holds them exactly, in whatever order a
        processor adds. One product per number rounds, so every machine decodes to the same bits.
        """
        signs, shift = _draws(self.padded, key)
        _, inverse = _permutation(self._chunks)
        mixed = self._transform(codes)
        mixed *= signs
        shifted = self._permuted(mixed, inverse)
        padded = _shifted(shifted, self.padded - shift)
        x = padded[: self.count]
        x *= scale / math.sqrt(self.block)
        return x

    @property
    def _chunks(self) -> int:
        """How many pieces are permuted: single numbers, or in large tensors a few neighbours at a time."""
        chunks = self.padded
        while chunks > MAX_CHUNKS and chunks % 2 == 0:
            chunks //= 2
        return chunks

    def _permuted(self, values: Tensor, order: Tensor) -> Tensor:
        if len(order) == len(values):
            return values.index_select(0, order)
        pieces = values.view(len(order), -1)
        return pieces.index_select(0, order).view(-1)

    def _transform(self, values: Tensor) -> Tensor:
        """The unnormalised Walsh–Hadamard transform of every block: H_{ab} vec(X) = vec(H_a X H_b)."""
        exponent = self.block.bit_length() - 1
        a = 1 << exponent // 2
        b = self.block // a
        columns = torch.mm(values.view(-1, b), _hadamard(b))
        if a == 1:
            return columns.view(-1)
        return torch.matmul(_hadamard(a), columns.view(-1, a, b)).view(-1)


def _forward_all(tensors: Sequence[Tensor], keys: Sequence[int]) -> list[Tensor]:
    """`forward` of each of these."""
    rotations = [_Rotation.of(x.numel()) for x in tensors]
    result: list[Tensor] = [x.new_empty(0) for x in tensors]
    for places in _together(rotations):
        if len(places) == 1:
            (place,) = places
            result[place] = rotations[place].forward(tensors[place], keys[place])
            continue
        sizes = tuple(rotations[place].padded for place in places)
        signs, shifts = _joint_draws(sizes, tuple(keys[place] for place in places))
        pieces: list[Tensor] = []
        for place, shift in zip(places, shifts, strict=True):
            x = tensors[place]
            if rotations[place].padded > len(x):
                x = pad(x, (0, rotations[place].padded - len(x)))
            pieces += (x[shift:], x[:shift])
        order, _ = _joint_permutation(sizes)
        mixed = torch.cat(pieces).index_select(0, order)
        mixed *= signs
        block = rotations[places[0]].block
        y = rotations[places[0]]._transform(mixed)
        y *= 1 / math.sqrt(block)
        for place, part in zip(places, y.split(sizes), strict=True):
            result[place] = part
    return result


def _backward_all(
    rotations: Sequence[_Rotation], codes: Sequence[Tensor], scales: Sequence[float], keys: Sequence[int]
) -> list[Tensor]:
    """`backward` of each of these."""
    result: list[Tensor] = [one.new_empty(0) for one in codes]
    for places in _together(rotations):
        if len(places) == 1:
            (place,) = places
            result[place] = rotations[place].backward(codes[place], scales[place], keys[place])
            continue
        sizes = tuple(rotations[place].padded for place in places)
        signs, shifts = _joint_draws(sizes, tuple(keys[place] for place in places))
        _, inverse = _joint_permutation(sizes)
        mixed = rotations[places[0]]._transform(torch.cat([codes[place] for place in places]))
        mixed *= signs
        pieces: list[Tensor] = []
        for shifted, shift in zip(mixed.index_select(0, inverse).split(sizes), shifts, strict=True):
            pieces += (shifted[len(shifted) - shift :], shifted[: len(shifted) - shift])
        for place, padded in zip(places, torch.cat(pieces).split(sizes), strict=True):
            x = padded[: rotations[place].count]
            x *= scales[place] / math.sqrt(rotations[place].block)
            result[place] = x
    return result


def _together(rotations: Sequence[_Rotation]) -> list[list[int]]:
    """Places of rotations that are made as one: of equal blocks, and not so large that calls cost nothing."""
    by_block: dict[int, list[int]] = {}
    alone: list[list[int]] = []
    for place, rotation in enumerate(rotations):
        if rotation.padded > MAX_JOINT or rotation.padded % 64:
            alone.append([place])
        else:
            by_block.setdefault(rotation.block, []).append(place)
    return [*by_block.values(), *alone]


@lru_cache(maxsize=16)  # as many as there are block sizes: a simulator undoes rotations right after they were made
def _joint_draws(sizes: tuple[int, ...], keys: tuple[int, ...]) -> tuple[Tensor, list[int]]:
    """What `_draws` gives for each, the signs one behind the other."""
    words: list[np.ndarray] = []
    shifts: list[int] = []
    for size, key in zip(sizes, keys, strict=True):
        drawn = bit_source(key).random_raw(1 + size // 64)
        shifts.append(int(drawn[0]) % size)
        words.append(drawn[1:])
    joined = np.concatenate(words).astype("<u8").view(np.uint8)
    signs = _signs_of_bytes().take(joined, axis=0)
    return torch.from_numpy(signs.reshape(-1)), shifts


@lru_cache(maxsize=1)
def _signs_of_bytes() -> np.ndarray:
    """The eight signs of each byte, the highest bit first."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return 1.0 - 2.0 * bits.astype(np.float32)


@lru_cache(maxsize=64)
def _joint_permutation(sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """What `_permutation` gives for each, one behind the other."""
    orders: list[Tensor] = []
    inverses: list[Tensor] = []
    start = 0
    for size in sizes:
        order, inverse = _permutation(size)
        orders.append(order + start)
        inverses.append(inverse + start)
        start += size
    return torch.cat(orders).int(), torch.cat(inverses).int()


def _shifted(values: Tensor, places: int) -> Tensor:
    """The numbers from `places` on, then those before."""
    return torch.cat((values[places:], values[:places]))


@lru_cache(maxsize=2)  # a simulator undoes a rotation right after it was made
def _draws(count: int, key: int) -> tuple[Tensor, int]:
    """ε, and by how much the numbers are shifted before they are permuted."""
    words = bit_source(key).random_raw(1 + -(-count // 64))
    shift = int(words[0]) % count
    bits = np.unpackbits(words[1:].astype("<u8").view(np.uint8), count=count)
    signs = bits.astype(np.float32)
    signs *= -2.0
    signs += 1.0
    return torch.from_numpy(signs), shift


def _nothing() -> Coded:
    return Coded(side=struct.pack("<H", EMPTY))


def _quantise(y: Tensor, sigma: float, index: int) -> Tensor:
    largest = largest_symbol(index)
    step = step_of(index) * sigma
    codes = y * (1 / step)
    codes.round_()
    return codes.clamp_(-largest, largest)


@lru_cache(maxsize=64)
def _permutation(count: int) -> tuple[Tensor, Tensor]:
    """A random order of so many pieces and its inverse."""
    order = torch.from_numpy(generator(count).permutation(count))
    return order, torch.argsort(order)


@lru_cache(maxsize=16)
def _hadamard(size: int) -> Tensor:
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        upper = torch.cat((matrix, matrix), dim=1)
        lower = torch.cat((matrix, -matrix), dim=1)
        matrix = torch.cat((upper, lower))
    return matrix
