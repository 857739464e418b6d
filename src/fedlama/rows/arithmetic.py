"""What a server computes on slices of rows: weighted means.

A mean must not depend on which process held which client, so its sum must not depend on the order of its terms. Each
term w_i·x^i is therefore rounded in float64 to a grid of 2⁻⁵⁰ of the slice's largest magnitude. The weights add up to
one, so every partial sum is a whole number of grid steps below 2⁵¹: float64 adds those without rounding, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlama.rows.slices import (
    PIECE,
    groups_of,
    joined,
    one_per_slice,
    pieces_of,
    sizes_of,
)

# Numbers of a mean at a time: they stay in the cache while every client's part is added
SUMMED = 1 << 16
READ_TOGETHER = 16  # clients whose absolute values are in memory at a time
MESSAGE = 1 << 17  # numbers that are added up over the processes at a time: a megabyte


def magnitudes(rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """The largest absolute value of every client's slices, [clients, slices]; NaN where a slice holds one."""
    result = one_per_slice(rows_CP, slices)
    if not len(rows_CP):
        return result
    for index, part in enumerate(slices):
        columns = rows_CP[:, part]
        _, width = columns.shape
        if width < PIECE:
            parts = zip(
                columns.split(READ_TOGETHER),
                result[:, index].split(READ_TOGETHER),
                strict=True,
            )
            for some_columns, found in parts:
                found.copy_(some_columns.abs().amax(dim=1))
            continue
        # A long slice is read as it is: its absolute values would take as much memory again.
        for client, numbers in enumerate(columns):
            low, high = torch.aminmax(numbers)
            result[client, index] = torch.maximum(low.neg_(), high)
    return result


def exact_sums(
    rows_CP: Tensor,
    weights: Sequence[float],
    slices: Sequence[slice],
    largest: Sequence[float],
) -> Tensor:
    """Σ_i w_i x^i over these rows, packed slice after slice in float64, independent of the order of the rows.

    Arguments:
        rows_CP: The clients.
        weights: What each of them weighs.
        slices: What is added up.
        largest: The largest magnitude of each slice over *all* clients, also those whose rows are elsewhere.
    """
    device = rows_CP.device
    width = sum(sizes_of(slices))
    packed = torch.empty(width, dtype=torch.float64, device=device)
    start = 0
    for block in _blocks(slices, largest, device):
        stop = start + block.size
        block.add_up(rows_CP, weights, packed[start:stop])
        start = stop
    return packed


def exact_means(
    rows_CP: Tensor,
    weights: Sequence[float],
    slices: Sequence[slice],
    largest: Sequence[float],
    sum_: Callable[[Tensor], None],
) -> Tensor:
    """Σ_i w_i x^i over the rows of all processes, packed slice after slice and rounded to float32.

    The same as `exact_sums` that are added up, but a message at a time. So only one message is ever held in float64,
    and it stays in the cache on its way: for a large model, writing all sums to memory and reading them again took as
    long as adding up.

    Arguments:
        rows_CP: The clients of this process.
        weights: What each of them weighs; those of all processes add up to one.
        slices: What is averaged.
        largest: The largest magnitude of each slice over the clients of all processes.
        sum_: Adds a tensor up over all processes, in place.
    """
    device = rows_CP.device
    width = sum(sizes_of(slices))
    means = torch.empty(width, dtype=torch.float32, device=device)
    capacity = min(MESSAGE, width)
    message = torch.empty(capacity, dtype=torch.float64, device=device)

    sent = 0
    held = 0
    for block in _blocks(slices, largest, device):
        end = held + block.size
        if end > capacity:
            # The slices alone decide where a message ends, so that all processes add up the same ones.
            full = message[:held]
            sum_(full)
            means[sent : sent + held] = full
            sent += held
            held = 0
            end = block.size
        block.add_up(rows_CP, weights, message[held:end])
        held = end

    if held:
        rest = message[:held]
        sum_(rest)
        means[sent:] = rest
    return means


@dataclass(frozen=True)
class _Block:
    """A few columns that are added up together: a piece of one long slice, or several short slices."""

    parts: Sequence[slice]
    anchor: Tensor  # one number for a piece; for short slices one per column

    @property
    def size(self) -> int:
        """How many columns there are."""
        return sum(sizes_of(self.parts))

    def add_up(self, rows_CP: Tensor, weights: Sequence[float], total: Tensor) -> None:
        """Write the sum over these rows into `total`."""
        if not len(rows_CP):
            total.zero_()
        elif len(self.parts) == 1:
            (piece,) = self.parts
            self._add_up_piece(rows_CP[:, piece], weights, total)
        else:
            self._add_up_slices(rows_CP, weights, total)

    def _add_up_slices(
        self, rows_CP: Tensor, weights: Sequence[float], total: Tensor
    ) -> None:
        weights_C = torch.tensor(
            weights,
            dtype=torch.float64,
            device=rows_CP.device,
        )
        terms = joined(rows_CP, self.parts)
        terms.mul_(weights_C[:, None])
        # To the anchor and back rounds every term to the grid.
        terms.add_(self.anchor)
        terms.sub_(self.anchor)
        torch.sum(terms, dim=0, out=total)

    def _add_up_piece(
        self, rows_CN: Tensor, weights: Sequence[float], total: Tensor
    ) -> None:
        # anchor + w·x rounds w·x to the anchor's last bit, which is the grid. So does −anchor + w·x: with one after the
        # other the anchors cancel, and need not be subtracted from every term. All sums are exact, whatever the order.
        anchors = (self.anchor, -self.anchor)
        term = torch.empty_like(total)
        weighted_rows = zip(rows_CN, weights, strict=True)
        for number, (row, weight) in enumerate(weighted_rows):
            # The first term is the sum so far, and needs no place of its own.
            target = total
            if number:
                target = term
            target.copy_(row)
            anchor = anchors[number % 2]
            torch.add(anchor, target, alpha=weight, out=target)
            if number:
                total.add_(term)
        anchor_is_left = len(rows_CN) % 2 == 1
        if anchor_is_left:
            total.sub_(self.anchor)


def _blocks(
    slices: Sequence[slice], largest: Sequence[float], device: torch.device
) -> Iterator[_Block]:
    """The blocks that cover these slices, one after the other."""
    anchors = torch.tensor(
        [_anchor(magnitude) for magnitude in largest],
        dtype=torch.float64,
        device=device,
    )
    for group in groups_of(slices):
        parts = slices[group]
        anchor = anchors[group]
        if len(parts) == 1:
            for piece in pieces_of(parts[0], SUMMED):
                yield _Block([piece], anchor)
        else:
            sizes = torch.tensor(sizes_of(parts), device=device)
            # Every column has the anchor of the slice that it belongs to.
            anchor_of_columns = anchor.repeat_interleave(sizes)
            yield _Block(parts, anchor_of_columns)


def _anchor(magnitude: float) -> float:
    """1.5 · 2⁵² grid steps: a float64 this large has the grid as its last bit, on both sides of it."""
    if not magnitude:
        # Nothing but zeros, which every grid holds
        return 0.0
    _, exponent = math.frexp(magnitude)
    return 1.5 * 2.0 ** (exponent + 2)
