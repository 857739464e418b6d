"""A random rotation that nothing is sent for: shift, permute, random signs, Walsh–Hadamard in blocks.

The permutation gives every block the same energy, whatever the structure of a kernel, so that one scale is enough. It
is fixed per length and shifted by a draw of the key. The signs, which make the errors of two clients independent, are
drawn for every number.

`blocks.py` says how tensors are cut into blocks, and which are rotated as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedlama.compress.blocks import SIGNS_PER_WORD, Blocks
from fedlama.compress.draws import bit_source, generator, rekey
from fedlama.compress.hadamard import transform
from fedlama.compress.numbers import SLAB
from fedlama.compress.scratch import lasting_tensor, working_tensor
from fedlama.rows.slices import pieces_of

MAX_PIECES = 1 << 18  # entries of a permutation that is kept: 4 MB with its inverse


@dataclass(frozen=True)
class Draws:
    """What is random in the rotations of some keys."""

    shifts: tuple[int, ...]  # of each tensor
    # Eight per byte, the highest bit first, one tensor behind the other
    signs: np.ndarray

    def signs_of(self, slab: slice, factor: float = 1.0) -> Tensor:
        """±1 for these numbers, times a float32 factor; they begin at a multiple of eight."""
        first_byte = slab.start // 8
        end_byte = math.ceil(slab.stop / 8)
        here = self.signs[first_byte:end_byte]

        of_bytes = _signs_of_bytes()
        if factor != 1.0:
            of_bytes = of_bytes * np.float32(factor)
        rows = of_bytes.take(here, axis=0)
        signs = torch.from_numpy(rows).view(-1)
        # The last byte may have more signs than there are numbers.
        count = slab.stop - slab.start
        return signs[:count]


class Rotations:
    """The rotations of tensors with equal blocks, one behind the other.

    Arguments:
        blocks: How each tensor is cut into blocks; more than one only if none stands alone.
    """

    def __init__(self, blocks: tuple[Blocks, ...]) -> None:
        self.blocks = blocks
        self.block = blocks[0].block
        self.sizes = tuple(one.padded for one in blocks)
        self.total = sum(self.sizes)

        self._blocks_per_tensor = torch.tensor(
            [size // self.block for size in self.sizes]
        )
        # Single numbers are permuted, or in a large tensor a few neighbours as one.
        self._piece = 1
        if len(blocks) == 1:
            self._piece = _piece_length(self.total)
        pieces = tuple(size // self._piece for size in self.sizes)
        self._order, self._inverse = _joint_permutation(pieces)

    @staticmethod
    @lru_cache(maxsize=256)
    def of(counts: tuple[int, ...]) -> Rotations:
        """The rotations of tensors with so many numbers."""
        return Rotations(tuple(Blocks.of(count) for count in counts))

    def forward(self, tensors: Sequence[Tensor], keys: Sequence[int]) -> Tensor:
        """y = WHT(ε ⊙ π(x))/√B of flat tensors, one behind the other with their padding."""
        draws = _draws(self.sizes, tuple(keys))
        shifted = self._shifted(tensors, draws.shifts)
        y = working_tensor(self.total, "rotated")
        for slab in self._slabs():
            order = self._order_within(slab)
            mixed = self._permuted(shifted, order)
            mixed *= draws.signs_of(slab)
            here = y[slab]
            transform(mixed, self.block, normalised=True, out=here)
        return y

    def _shifted(self, tensors: Sequence[Tensor], shifts: Sequence[int]) -> Tensor:
        """The tensors one behind the other, each padded to its size and begun at its shift."""
        pieces: list[Tensor] = []
        for x, size, shift in zip(tensors, self.sizes, shifts, strict=True):
            padded = x
            missing = size - len(x)
            if missing:
                padded = pad(x, (0, missing))
            pieces.append(padded[shift:])
            pieces.append(padded[:shift])
        shifted = working_tensor(self.total, "shifted")
        torch.cat(pieces, out=shifted)
        return shifted

    def backward(
        self, codes: Tensor, scales: Sequence[float], keys: Sequence[int]
    ) -> list[Tensor]:
        """π⁻¹(ε ⊙ WHT(j))·S/√B for each tensor, from the codes of all.

        The codes are whole numbers and so are all sums of them: float32 holds them exactly, in whatever order a
        processor adds. One product per number rounds, so every machine decodes to the same bits.
        """
        draws = _draws(self.sizes, tuple(keys))
        mixed = self._transformed_back(codes, scales, draws)
        if self._piece > 1:
            # Only a tensor by itself is so large
            (shift,) = draws.shifts
            (blocks,) = self.blocks
            padded = self._put_back(mixed, shift)
            return [padded[: blocks.count]]

        shifted = mixed.index_select(0, self._inverse)
        pieces = shifted.split(self.sizes)
        tensors: list[Tensor] = []
        for blocks, piece, shift in zip(self.blocks, pieces, draws.shifts, strict=True):
            padded = _without_shift(piece, shift)
            tensor = padded[: blocks.count]
            tensors.append(tensor)
        return tensors

    def _transformed_back(
        self, codes: Tensor, scales: Sequence[float], draws: Draws
    ) -> Tensor:
        """ε ⊙ WHT(j)·S/√B of all tensors, still permuted and shifted."""
        root = math.sqrt(self.block)
        quotients = [scale / root for scale in scales]
        factors = torch.tensor(quotients, dtype=torch.float32)
        mixed = working_tensor(self.total, "rotated")
        for slab in self._slabs():
            here = mixed[slab]
            transform(codes[slab], self.block, normalised=False, out=here)
            if len(self.sizes) == 1:
                # The factor goes into the signs, which changes no digit: one pass less over the numbers.
                here *= draws.signs_of(slab, factor=float(factors))
                continue
            here *= draws.signs_of(slab)
            # Several tensors are one slab, so that these are the factors of all blocks, which are in rows.
            factor_of_block = factors.repeat_interleave(self._blocks_per_tensor)
            in_blocks = here.view(-1, self.block)
            in_blocks *= factor_of_block[:, None]
        return mixed

    def _slabs(self) -> list[slice]:
        """What is worked on at a time: everything, or of a large tensor what stays in the cache."""
        everything = slice(0, self.total)
        if len(self.sizes) > 1:
            return [everything]
        return list(pieces_of(everything, SLAB))

    def _order_within(self, slab: slice) -> Tensor:
        """Which pieces come to lie in a slab."""
        first_piece = slab.start // self._piece
        end_piece = slab.stop // self._piece
        return self._order[first_piece:end_piece]

    def _permuted(self, values: Tensor, order: Tensor) -> Tensor:
        """The pieces in this order."""
        if self._piece == 1:
            return values.index_select(0, order)
        pieces = values.view(-1, self._piece)
        count = len(order)
        selected = torch.empty(count, self._piece)
        _take_rows(pieces, order, out=selected)
        return selected.view(-1)

    def _put_back(self, mixed: Tensor, shift: int) -> Tensor:
        """The pieces of a large tensor in their own order, and the shift undone, in one pass."""
        # What was in front before the shift is at the end now: as a rule the tensor begins inside a piece. So this
        # piece is selected first and last, and the tensor is cut out of all.
        begins = (self.total - shift) % self.total
        first_piece = begins // self._piece
        within = begins % self._piece
        to_the_end = self._inverse[first_piece:]
        from_the_front = self._inverse[: first_piece + 1]
        order = torch.cat((to_the_end, from_the_front))

        selected = lasting_tensor(len(order) * self._piece)
        _take_rows(
            mixed.view(-1, self._piece),
            order,
            out=selected.view(-1, self._piece),
        )
        return selected[within : within + self.total]


def _without_shift(shifted: Tensor, shift: int) -> Tensor:
    """A tensor that begins at its shift, from its own beginning again."""
    begins = len(shifted) - shift
    front = shifted[begins:]
    rest = shifted[:begins]
    return torch.cat((front, rest))


def _take_rows(matrix: Tensor, order: Tensor, out: Tensor) -> None:
    """The rows of a matrix in this order: numpy takes them in half of torch's time."""
    matrix.numpy().take(order.numpy(), axis=0, out=out.numpy(), mode="clip")


# As many as there are block sizes: a simulator undoes rotations right after they were made
@lru_cache(maxsize=16)
def _draws(sizes: tuple[int, ...], keys: tuple[int, ...]) -> Draws:
    """By how much the numbers are shifted before they are permuted, and ε."""
    shifts: list[int] = []
    words: list[np.ndarray] = []
    source = bit_source(0)
    for size, key in zip(sizes, keys, strict=True):
        rekey(source, key)
        sign_words = math.ceil(size / SIGNS_PER_WORD)
        drawn = source.random_raw(1 + sign_words)
        for_the_shift = int(drawn[0])
        shifts.append(for_the_shift % size)
        words.append(drawn[1:])
    # In the same order of bytes on every machine
    joined = np.concatenate(words).astype("<u8", copy=False)
    signs = joined.view(np.uint8)
    return Draws(tuple(shifts), signs)


@lru_cache(maxsize=1)
def _signs_of_bytes() -> np.ndarray:
    """The eight signs of each byte, the highest bit first."""
    numbers = np.arange(256, dtype=np.uint8)
    bits = np.unpackbits(numbers[:, None], axis=1)
    return 1.0 - 2.0 * bits.astype(np.float32)


def _piece_length(count: int) -> int:
    """How many neighbours are permuted as one: single numbers, or in large tensors a few."""
    length = 1
    pieces = count
    # Only as long as no number is left over
    while pieces > MAX_PIECES and pieces % 2 == 0:
        length *= 2
        pieces //= 2
    return length


@lru_cache(maxsize=64)
def _joint_permutation(counts: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """What `_permutation` gives for each of so many pieces, one behind the other."""
    orders: list[Tensor] = []
    inverses: list[Tensor] = []
    start = 0
    for count in counts:
        order, inverse = _permutation(count)
        orders.append(order + start)
        inverses.append(inverse + start)
        start += count
    return torch.cat(orders).int(), torch.cat(inverses).int()


@lru_cache(maxsize=64)
def _permutation(count: int) -> tuple[Tensor, Tensor]:
    """A random order of so many pieces and its inverse."""
    order = torch.from_numpy(generator(count).permutation(count))
    return order, torch.argsort(order)
