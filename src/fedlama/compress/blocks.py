"""How tensors are cut into the blocks of a Walsh–Hadamard transform, and which of them are rotated as one.

On some thousand numbers, calls cost more than arithmetic: so tensors of equal blocks go together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

# Two products with 32 × 32 matrices; larger blocks cost more and mix no better
MIN_BLOCK, MAX_BLOCK = 64, 1024
# Numbers: larger tensors gain nothing from being rotated with others
MAX_JOINT = 1 << 16
MAX_BATCH = 1 << 18  # numbers that are rotated as one
SIGNS_PER_WORD = 64  # random ones


@dataclass(frozen=True)
class Blocks:
    """How `count` numbers are cut into blocks: `padded` numbers in blocks of `block`."""

    count: int
    padded: int
    block: int

    @staticmethod
    @lru_cache(maxsize=4096)
    def of(count: int) -> Blocks:
        """Blocks of the largest power of two that divides the length, so that 9·2^k numbers need no padding."""
        if count < MIN_BLOCK:
            block = 1 << (count - 1).bit_length()
            return Blocks(count, block, block)
        natural = _largest_power_of_two_in(count)
        # Padding of at most a thousandth buys larger blocks for lengths with few factors of two.
        wanted = (1 << (count // 1024).bit_length()) >> 1
        wanted = max(wanted, MIN_BLOCK)
        wanted = min(wanted, MAX_BLOCK)
        if natural >= wanted:
            block = min(natural, MAX_BLOCK)
            return Blocks(count, count, block)
        padded = math.ceil(count / wanted) * wanted
        block = min(_largest_power_of_two_in(padded), MAX_BLOCK)
        return Blocks(count, padded, block)

    @property
    def stands_alone(self) -> bool:
        """Whether it is rotated by itself: too large to gain from company, or too small for a whole word of signs."""
        return self.padded > MAX_JOINT or self.padded % SIGNS_PER_WORD > 0


def together(counts: Mapping[int, int]) -> list[list[int]]:
    """Which tensors are rotated as one: those of equal blocks. Given is how many numbers the tensor of a place has."""
    result: list[list[int]] = []
    # By block: which tensors, and how many numbers they have
    open_batches: dict[int, tuple[list[int], int]] = {}
    for place, count in counts.items():
        blocks = Blocks.of(count)
        if blocks.stands_alone:
            result.append([place])
            continue
        batch, total = open_batches.get(blocks.block, ([], 0))
        if not batch or total + count > MAX_BATCH:
            batch = []
            total = 0
            result.append(batch)
        batch.append(place)
        open_batches[blocks.block] = (batch, total + count)
    return result


def _largest_power_of_two_in(number: int) -> int:
    """The largest power of two that divides it: its lowest bit."""
    return number & -number
