"""How far clients are from their mean: squared distances of slices of rows, in float64."""

from __future__ import annotations

from collections.abc import Sequence

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

CLIENTS_AT_ONCE = 4  # whose differences are taken by one call


def squared_distances(mean: Tensor, rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """‖u − x^i‖² of every client's slices, [clients, slices], in float64."""
    result = one_per_slice(rows_CP, slices)
    if not len(rows_CP):
        return result
    for group in groups_of(slices):
        parts = slices[group]
        first = group.start
        if len(parts) == 1:
            (part,) = parts
            distances = _long_distances(mean[part], rows_CP[:, part])
            result[:, first] = distances
            continue
        squares = _squared_differences(mean, rows_CP, parts)
        sizes = sizes_of(parts)
        of_slices = squares.split(sizes, dim=1)
        for index, numbers in enumerate(of_slices, start=first):
            result[:, index] = numbers.sum(dim=1)
    return result


def _squared_differences(
    mean: Tensor, rows_CP: Tensor, slices: Sequence[slice]
) -> Tensor:
    """(u − x^i)² of every number in these slices, one slice beside the other."""
    differences = joined(rows_CP, slices)
    target = joined(mean[None], slices)
    differences.sub_(target)
    return differences.square_()


def _long_distances(mean: Tensor, rows_CN: Tensor) -> Tensor:
    """Of one long slice, a piece at a time; a piece of the mean is converted once for all clients."""
    device = mean.device
    target = torch.empty(PIECE, dtype=torch.float64, device=device)
    differences = torch.empty(
        CLIENTS_AT_ONCE,
        PIECE,
        dtype=torch.float64,
        device=device,
    )
    squares = torch.zeros(len(rows_CN), dtype=torch.float64, device=device)
    of_piece = torch.zeros_like(squares)
    # Views of single numbers, which a product can be written to
    of_clients = list(of_piece)

    whole = slice(0, len(mean))
    for piece in pieces_of(whole, PIECE):
        size = piece.stop - piece.start
        mean_here = target[:size]
        mean_here.copy_(mean[piece])
        _square_piece(
            mean_here,
            rows_CN[:, piece],
            differences=differences[:, :size],
            squares=of_clients,
        )
        squares += of_piece
    return squares


def _square_piece(
    mean: Tensor,
    rows_CN: Tensor,
    differences: Tensor,
    squares: Sequence[Tensor],
) -> None:
    """Write ‖u − x^i‖² of every row into `squares`, a few clients at a time; `differences` is room to work in."""
    clients = len(rows_CN)
    for first in range(0, clients, CLIENTS_AT_ONCE):
        stop = min(first + CLIENTS_AT_ONCE, clients)
        count = stop - first
        values_CN = differences[:count]
        # Converted before it is subtracted: a difference in float32 would be rounded.
        values_CN.copy_(rows_CN[first:stop])
        torch.sub(mean, values_CN, out=values_CN)
        for client, values in enumerate(values_CN, start=first):
            square = squares[client]
            torch.dot(values, values, out=square)
