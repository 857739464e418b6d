"""What a server computes on slices of rows: weighted means and squared distances to them.

A mean must not depend on which process held which client, so its sum must not depend on the order of its terms. Each
term w_i·x^i is therefore rounded in float64 to a grid of 2⁻⁵⁰ of the slice's largest magnitude. The weights add up to
one, so every partial sum is a whole number of grid steps below 2⁵¹: float64 adds those without rounding, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

PIECE = 1 << 15  # numbers: small enough to stay in the cache while every client's part is added


def magnitudes(rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """The largest absolute value of every client's slices, [clients, slices]; NaN where a slice holds one."""
    result = torch.zeros(len(rows_CP), len(slices), dtype=torch.float64, device=rows_CP.device)
    for index, part in enumerate(slices) if len(rows_CP) else ():
        if part.stop - part.start < PIECE:
            low, high = torch.aminmax(rows_CP[:, part], dim=1)
            result[:, index] = torch.maximum(low.abs(), high.abs())
            continue
        for client, row in enumerate(rows_CP):  # of a long slice, a whole row at a time is faster
            low, high = torch.aminmax(row[part])
            result[client, index] = torch.maximum(low.abs(), high.abs())
    return result


def exact_sums(rows_CP: Tensor, weights: Sequence[float], slices: Sequence[slice], largest: Sequence[float]) -> Tensor:
    """Σ_i w_i x^i over these rows, packed slice after slice in float64, independent of the order of the rows.

    `largest` is the largest magnitude of each slice over *all* clients, also those whose rows are elsewhere.
    """
    packed = torch.zeros(sum(part.stop - part.start for part in slices), dtype=torch.float64, device=rows_CP.device)
    term = torch.empty(PIECE, dtype=torch.float64, device=rows_CP.device)
    start = 0
    for part, magnitude in zip(slices, largest, strict=True):
        anchor = torch.tensor([_anchor(magnitude)], dtype=torch.float64, device=rows_CP.device)
        for piece in _pieces(part):
            size = piece.stop - piece.start
            total = packed[start : start + size]
            for row, weight in zip(rows_CP, weights, strict=True):
                # anchor + w·x rounds w·x to the anchor's last bit, which is the grid
                rounded = torch.add(anchor, row[piece], alpha=weight, out=term[:size])
                total.add_(rounded.sub_(anchor))
            start += size
    return packed


def unpack(packed: Tensor, row: Tensor, slices: Sequence[slice]) -> None:
    """Write packed numbers back into these slices of `row`."""
    start = 0
    for part in slices:
        size = part.stop - part.start
        row[part] = packed[start : start + size]
        start += size


def squared_distance(mean: Tensor, row: Tensor, slices: Sequence[slice]) -> Tensor:
    """‖u_l − x_l‖² of one client's copy of one layer, as a float64 scalar."""
    difference = torch.empty(PIECE, dtype=torch.float64, device=mean.device)
    squares = torch.zeros((), dtype=torch.float64, device=mean.device)
    for part in slices:
        for piece in _pieces(part):
            values = difference[: piece.stop - piece.start].copy_(mean[piece]).sub_(row[piece])
            squares += torch.dot(values, values)
    return squares


def _anchor(magnitude: float) -> float:
    """1.5 · 2⁵² grid steps: a float64 this large has the grid as its last bit, on both sides of it."""
    return 1.5 * 2.0 ** (math.frexp(magnitude)[1] + 2) if magnitude else 0.0


def _pieces(part: slice) -> Iterator[slice]:
    for start in range(part.start, part.stop, PIECE):
        yield slice(start, min(start + PIECE, part.stop))
