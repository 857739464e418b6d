"""What a server computes on slices of rows: weighted means and squared distances to them.

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

# Numbers whose squares are added up at a time; the last bits of a distance depend on it
PIECE = 1 << 15
# Numbers of a mean at a time: they stay in the cache while every client's part is added
SUMMED = 1 << 16
MESSAGE = 1 << 17  # numbers that are added up over the processes at a time: a megabyte
CLIENTS_AT_ONCE = 4  # whose differences are taken by one call


def magnitudes(rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """The largest absolute value of every client's slices, [clients, slices]; NaN where a slice holds one."""
    result = torch.zeros(
        len(rows_CP), len(slices), dtype=torch.float64, device=rows_CP.device
    )
    if not len(rows_CP):
        return result
    for index, part in enumerate(slices):
        columns = rows_CP[:, part]
        if columns.shape[1] < PIECE:
            low, high = torch.aminmax(columns, dim=1)
            result[:, index] = torch.maximum(low.neg_(), high)
            continue
        # Of a long slice, a whole row at a time is faster.
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
    packed = torch.empty(
        sum(_sizes(slices)), dtype=torch.float64, device=rows_CP.device
    )
    start = 0
    for block in _blocks(slices, largest, rows_CP.device):
        block.add_up(rows_CP, weights, packed[start : start + block.size])
        start += block.size
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
    means = torch.empty(sum(_sizes(slices)), dtype=torch.float32, device=rows_CP.device)
    message = torch.empty(
        min(MESSAGE, len(means)), dtype=torch.float64, device=rows_CP.device
    )
    sent = 0
    held = 0
    for block in _blocks(slices, largest, rows_CP.device):
        if held + block.size > len(message):
            sum_(message[:held])
            means[sent : sent + held] = message[:held]
            sent += held
            held = 0
        block.add_up(rows_CP, weights, message[held : held + block.size])
        held += block.size
    if held:
        sum_(message[:held])
        means[sent:] = message[:held]
    return means


@dataclass(frozen=True)
class _Block:
    """A few columns that are added up together: a piece of one long slice, or several short slices."""

    parts: Sequence[slice]
    anchor: Tensor  # one number for a piece; for short slices one per column

    @property
    def size(self) -> int:
        """How many columns there are."""
        return sum(_sizes(self.parts))

    def add_up(self, rows_CP: Tensor, weights: Sequence[float], total: Tensor) -> None:
        """Write the sum over these rows into `total`."""
        if not len(rows_CP):
            total.zero_()
        elif len(self.parts) == 1:
            self._add_up_piece(rows_CP[:, self.parts[0]], weights, total)
        else:
            weights_C = torch.tensor(
                weights, dtype=torch.float64, device=rows_CP.device
            )
            terms = _joined(rows_CP, self.parts)
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
        for number, (row, weight) in enumerate(zip(rows_CN, weights, strict=True)):
            target = total
            if number:
                target = term
            target.copy_(row)
            torch.add(anchors[number % 2], target, alpha=weight, out=target)
            if number:
                total.add_(term)
        if len(rows_CN) % 2:
            total.sub_(self.anchor)


def _blocks(
    slices: Sequence[slice], largest: Sequence[float], device: torch.device
) -> Iterator[_Block]:
    """The blocks that cover these slices, one after the other."""
    anchors = torch.tensor(
        [_anchor(one) for one in largest], dtype=torch.float64, device=device
    )
    for group in _groups(slices):
        parts = slices[group]
        anchor = anchors[group]
        if len(parts) == 1:
            for piece in _pieces(parts[0], SUMMED):
                yield _Block([piece], anchor)
        else:
            sizes = torch.tensor(_sizes(parts), device=device)
            yield _Block(parts, anchor.repeat_interleave(sizes))


def _pieces(part: slice, size: int) -> Iterator[slice]:
    """A long slice in pieces of this size; the last one may be shorter."""
    for start in range(part.start, part.stop, size):
        stop = min(start + size, part.stop)
        yield slice(start, stop)


def pack(row: Tensor, slices: Sequence[slice]) -> Tensor:
    """These slices of a row, one behind the other."""
    return torch.cat([row[part] for part in slices])


def unpack(packed: Tensor, row: Tensor, slices: Sequence[slice]) -> None:
    """Write packed numbers back into these slices of `row`."""
    for part, numbers in zip(slices, packed.split(_sizes(slices)), strict=True):
        row[part] = numbers


def with_unpacked(packed: Tensor, row: Tensor, slices: Sequence[slice]) -> Tensor:
    """A copy of `row` with packed numbers in these slices.

    Every number is written once. For a large model, a whole copy that is then written over costs a pass over memory.
    """
    copy = torch.empty_like(row)
    start = 0
    for part in sorted(slices, key=lambda one: one.start):
        copy[start : part.start] = row[start : part.start]
        start = part.stop
    copy[start:] = row[start:]
    unpack(packed, copy, slices)
    return copy


def squared_distances(mean: Tensor, rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """‖u − x^i‖² of every client's slices, [clients, slices], in float64."""
    result = torch.zeros(
        len(rows_CP), len(slices), dtype=torch.float64, device=rows_CP.device
    )
    if not len(rows_CP):
        return result
    for group in _groups(slices):
        parts = slices[group]
        if len(parts) == 1:
            part = parts[0]
            result[:, group.start] = _long_distances(mean[part], rows_CP[:, part])
            continue
        differences = _joined(rows_CP, parts)
        differences.sub_(_joined(mean[None], parts))
        squares = differences.square_()
        for index, numbers in enumerate(
            squares.split(_sizes(parts), dim=1), start=group.start
        ):
            result[:, index] = numbers.sum(dim=1)
    return result


def _long_distances(mean: Tensor, rows_CN: Tensor) -> Tensor:
    """Of one long slice, a piece at a time; a piece of the mean is converted once for all clients."""
    target = torch.empty(PIECE, dtype=torch.float64, device=mean.device)
    differences = torch.empty(
        CLIENTS_AT_ONCE, PIECE, dtype=torch.float64, device=mean.device
    )
    squares = torch.zeros(len(rows_CN), dtype=torch.float64, device=mean.device)
    of_piece = torch.zeros_like(squares)
    # Views of single numbers, which a product can be written to
    of_client = list(of_piece)
    for piece in _pieces(slice(0, len(mean)), PIECE):
        size = piece.stop - piece.start
        mean_here = target[:size]
        mean_here.copy_(mean[piece])
        for first in range(0, len(rows_CN), CLIENTS_AT_ONCE):
            some_CN = rows_CN[first : first + CLIENTS_AT_ONCE, piece]
            values_CN = differences[: len(some_CN), :size]
            values_CN.copy_(some_CN)
            torch.sub(mean_here, values_CN, out=values_CN)
            for client, values in enumerate(values_CN, start=first):
                torch.dot(values, values, out=of_client[client])
        squares += of_piece
    return squares


def _groups(slices: Sequence[slice]) -> list[slice]:
    """Which consecutive slices are worked on at once: one call costs more than the arithmetic of a short slice.

    It depends on the slices alone, never on how many rows are here: the last bits of a distance depend on it.
    """
    groups: list[slice] = []
    start = 0
    held = 0
    for index, size in enumerate(_sizes(slices)):
        if index > start and held + size > PIECE:
            groups.append(slice(start, index))
            start = index
            held = 0
        held += size
    if slices:
        groups.append(slice(start, len(slices)))
    return groups


def _joined(rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """These columns of every row beside each other, in float64."""
    columns = [rows_CP[:, part] for part in slices]
    return torch.cat(columns, dim=1).double()


def _sizes(slices: Sequence[slice]) -> list[int]:
    return [part.stop - part.start for part in slices]


def _anchor(magnitude: float) -> float:
    """1.5 · 2⁵² grid steps: a float64 this large has the grid as its last bit, on both sides of it."""
    if not magnitude:
        return 0.0
    _, exponent = math.frexp(magnitude)
    return 1.5 * 2.0 ** (exponent + 2)
