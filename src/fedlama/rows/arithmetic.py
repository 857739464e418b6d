"""What a server computes on slices of rows: weighted means and squared distances to them.

A mean must not depend on which process held which client, so its sum must not depend on the order of its terms. Each
term w_i·x^i is therefore rounded in float64 to a grid of 2⁻⁵⁰ of the slice's largest magnitude. The weights add up to
one, so every partial sum is a whole number of grid steps below 2⁵¹: float64 adds those without rounding, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

PIECE = 1 << 15  # numbers: small enough to stay in the cache while every client's part is added


def magnitudes(rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """The largest absolute value of every client's slices, [clients, slices]; NaN where a slice holds one."""
    result = torch.zeros(len(rows_CP), len(slices), dtype=torch.float64, device=rows_CP.device)
    for index, part in enumerate(slices) if len(rows_CP) else ():
        if part.stop - part.start < PIECE:
            low, high = torch.aminmax(rows_CP[:, part], dim=1)
            result[:, index] = torch.maximum(low.neg_(), high)
            continue
        for client, row in enumerate(rows_CP):  # of a long slice, a whole row at a time is faster
            low, high = torch.aminmax(row[part])
            result[client, index] = torch.maximum(low.neg_(), high)
    return result


def exact_sums(rows_CP: Tensor, weights: Sequence[float], slices: Sequence[slice], largest: Sequence[float]) -> Tensor:
    """Σ_i w_i x^i over these rows, packed slice after slice in float64, independent of the order of the rows.

    `largest` is the largest magnitude of each slice over *all* clients, also those whose rows are elsewhere.
    """
    packed = torch.zeros(sum(_sizes(slices)), dtype=torch.float64, device=rows_CP.device)
    weights_C = torch.tensor(weights, dtype=torch.float64, device=rows_CP.device)
    anchors = torch.tensor([_anchor(one) for one in largest], dtype=torch.float64, device=rows_CP.device)
    start = 0
    for group in _groups(slices):
        sizes = _sizes(slices[group])
        total = packed[start : start + sum(sizes)]
        if len(sizes) == 1:
            _add_long(total, rows_CP[:, slices[group.start]], weights, anchors[group])
        else:
            anchor = anchors[group].repeat_interleave(torch.tensor(sizes, device=rows_CP.device))
            terms = _joined(rows_CP, slices[group]).mul_(weights_C[:, None])
            torch.sum(terms.add_(anchor).sub_(anchor), dim=0, out=total)
        start += sum(sizes)
    return packed


def _add_long(total: Tensor, rows_CN: Tensor, weights: Sequence[float], anchor: Tensor) -> None:
    """Add every row's terms, a piece at a time, so that what is added up stays in the cache."""
    term = torch.empty(min(PIECE, len(total)), dtype=torch.float64, device=total.device)
    for start in range(0, len(total), PIECE):
        part = total[start : start + PIECE]
        for row, weight in zip(rows_CN, weights, strict=True):
            # anchor + w·x rounds w·x to the anchor's last bit, which is the grid
            rounded = torch.add(anchor, row[start : start + PIECE], alpha=weight, out=term[: len(part)])
            part.add_(rounded.sub_(anchor))


def pack(row: Tensor, slices: Sequence[slice]) -> Tensor:
    """These slices of a row, one behind the other."""
    return torch.cat([row[part] for part in slices])


def unpack(packed: Tensor, row: Tensor, slices: Sequence[slice]) -> None:
    """Write packed numbers back into these slices of `row`."""
    for part, numbers in zip(slices, packed.split(_sizes(slices)), strict=True):
        row[part] = numbers


def squared_distances(mean: Tensor, rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """‖u − x^i‖² of every client's slices, [clients, slices], in float64."""
    result = torch.zeros(len(rows_CP), len(slices), dtype=torch.float64, device=rows_CP.device)
    for group in _groups(slices) if len(rows_CP) else ():
        if group.stop - group.start == 1:
            part = slices[group.start]
            for client, row in enumerate(rows_CP):
                result[client, group.start] = _long_distance(mean[part], row[part])
            continue
        squares = _joined(rows_CP, slices[group]).sub_(_joined(mean[None], slices[group])).square_()
        for index, numbers in zip(range(group.start, group.stop), squares.split(_sizes(slices[group]), 1), strict=True):
            result[:, index] = numbers.sum(dim=1)
    return result


def _long_distance(mean: Tensor, row: Tensor) -> Tensor:
    difference = torch.empty(min(PIECE, len(row)), dtype=torch.float64, device=mean.device)
    squares = torch.zeros((), dtype=torch.float64, device=mean.device)
    for start in range(0, len(row), PIECE):
        one, other = mean[start : start + PIECE], row[start : start + PIECE]
        values = difference[: len(one)].copy_(one).sub_(other)
        squares += torch.dot(values, values)
    return squares


def _groups(slices: Sequence[slice]) -> list[slice]:
    """Which consecutive slices are worked on at once: one call costs more than the arithmetic of a short slice.

    It depends on the slices alone, never on how many rows are here: the last bits of a distance depend on it.
    """
    groups: list[slice] = []
    start = held = 0
    for index, size in enumerate(_sizes(slices)):
        if index > start and held + size > PIECE:
            groups.append(slice(start, index))
            start, held = index, 0
        held += size
    return [*groups, slice(start, len(slices))] if slices else []


def _joined(rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """These columns of every row beside each other, in float64."""
    return torch.cat([rows_CP[:, part] for part in slices], dim=1).double()


def _sizes(slices: Sequence[slice]) -> list[int]:
    return [part.stop - part.start for part in slices]


def _anchor(magnitude: float) -> float:
    """1.5 · 2⁵² grid steps: a float64 this large has the grid as its last bit, on both sides of it."""
    return 1.5 * 2.0 ** (math.frexp(magnitude)[1] + 2) if magnitude else 0.0
