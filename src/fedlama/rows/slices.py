"""Slices of rows: packed one behind the other, cut into pieces, and taken together where they are short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

# Numbers whose squares are added up at a time; the last bits of a distance depend on it
PIECE = 1 << 15


def views(
    rows: Mapping[str, Tensor], where: int | slice | tuple[slice, slice]
) -> dict[str, Tensor]:
    """The same place of every named row: views, so what is written there is written to the rows.

    Arguments:
        rows: [width] or [clients, width] for each name.
        where: As a tensor is indexed: a client or a slice, or a slice of clients and one of their rows.
    """
    parts: dict[str, Tensor] = {}
    for name, values in rows.items():
        parts[name] = values[where]
    return parts


def pack(row: Tensor, slices: Sequence[slice]) -> Tensor:
    """These slices of a row, one behind the other."""
    parts = [row[part] for part in slices]
    return torch.cat(parts)


def unpack(packed: Tensor, row: Tensor, slices: Sequence[slice]) -> None:
    """Write packed numbers back into these slices of `row`."""
    parts = packed.split(sizes_of(slices))
    for part, numbers in zip(slices, parts, strict=True):
        row[part] = numbers


def with_unpacked(packed: Tensor, row: Tensor, slices: Sequence[slice]) -> Tensor:
    """A copy of `row` with packed numbers in these slices.

    Every number is written once. For a large model, a whole copy that is then written over costs a pass over memory.
    """
    copy = torch.empty_like(row)
    # What lies between the slices comes from the row.
    start = 0
    in_order = sorted(slices, key=lambda one: one.start)
    for part in in_order:
        gap = slice(start, part.start)
        copy[gap] = row[gap]
        start = part.stop
    rest = slice(start, None)
    copy[rest] = row[rest]
    unpack(packed, copy, slices)
    return copy


def joined(rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """These columns of every row beside each other, in float64."""
    columns = [rows_CP[:, part] for part in slices]
    side_by_side = torch.cat(columns, dim=1)
    return side_by_side.double()


def groups_of(slices: Sequence[slice]) -> list[slice]:
    """Which consecutive slices are worked on at once: one call costs more than the arithmetic of a short slice.

    It depends on the slices alone, never on how many rows are here: the last bits of a distance depend on it.
    """
    groups: list[slice] = []
    start = 0
    held = 0
    for index, size in enumerate(sizes_of(slices)):
        # A slice that is long by itself is a group of its own.
        is_full = index > start and held + size > PIECE
        if is_full:
            group = slice(start, index)
            groups.append(group)
            start = index
            held = 0
        held += size
    if slices:
        last = slice(start, len(slices))
        groups.append(last)
    return groups


def pieces_of(part: slice, size: int) -> Iterator[slice]:
    """A long slice in pieces of this size; the last one may be shorter."""
    for start in range(part.start, part.stop, size):
        end = start + size
        stop = min(end, part.stop)
        yield slice(start, stop)


def sizes_of(slices: Sequence[slice]) -> list[int]:
    """How many numbers each slice has."""
    return [part.stop - part.start for part in slices]


def one_per_slice(rows_CP: Tensor, slices: Sequence[slice]) -> Tensor:
    """Zeros in float64, one for every slice of every client: [clients, slices]."""
    return torch.zeros(
        len(rows_CP),
        len(slices),
        dtype=torch.float64,
        device=rows_CP.device,
    )
