"""What is coded as one in a message: each large tensor, all small tensors of the due layers together, all statistics
together.

A scale and a step cost a few bytes per group. A kernel of thousands of numbers can pay for its own; a bias of ten
cannot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlama.compress.limits import SMALL
from fedlama.compress.statistics import Statistics
from fedlama.core import Layout

SMALL_GROUP, STATISTICS_GROUP = -1, -2  # beside the numbers of tensors, which begin at 0


@dataclass(frozen=True, eq=False)
class Group:
    """Numbers of a row that are coded as one.

    `number` is the tensor's, or one of the two above. `where` is a slice or an index of the row. `sizes` tells how many
    of the numbers belong to which layer, in the order in which they are coded.
    """

    number: int
    where: slice | Tensor
    shape: tuple[int, ...]
    sizes: dict[int, int]

    @property
    def size(self) -> int:
        """How many numbers."""
        return math.prod(self.shape)

    @property
    def is_large(self) -> bool:
        """Whether it is one tensor, at the codec's own rate."""
        return self.number >= 0

    def read(self, row: Tensor) -> Tensor:
        """These numbers of a row."""
        if isinstance(self.where, slice):
            return row[self.where].view(self.shape)
        return row.index_select(0, self.where)

    def write(self, row: Tensor, values: Tensor) -> None:
        """Put these numbers into a row."""
        if isinstance(self.where, slice):
            row[self.where] = values.reshape(-1)
        else:
            row.index_copy_(0, self.where, values.reshape(-1))


class Grouping:
    """The groups of a layout's messages."""

    def __init__(self, layout: Layout, statistics: Statistics) -> None:
        self._statistics = Group(STATISTICS_GROUP, statistics.index, (statistics.size,), {})
        owner: dict[int, int] = {}
        for index, layer in enumerate(layout.layers):
            for part in layer.slices:
                owner[part.start] = index
        self._tensors: list[tuple[int, slice, tuple[int, ...]]] = []  # layer, where, shape
        for part, shape in zip(layout.tensor_slices, layout.shapes, strict=True):
            layer = owner[part.start]
            self._tensors.append((layer, part, _as_matrix(shape)))

    def of(self, due: Sequence[int], *, statistics: bool) -> tuple[Group, ...]:
        """The groups of a message with these layers: large tensors in the row's order, the small ones, statistics."""
        wanted = set(due)
        groups: list[Group] = []
        places: list[Tensor] = []
        sizes: dict[int, int] = {}
        for number, (layer, part, shape) in enumerate(self._tensors):
            size = part.stop - part.start
            if layer not in wanted:
                continue
            if size >= SMALL:
                groups.append(Group(number, part, shape, {layer: size}))
                continue
            places.append(torch.arange(part.start, part.stop))
            sizes[layer] = sizes.get(layer, 0) + size
        if places:
            index = torch.cat(places)
            groups.append(Group(SMALL_GROUP, index, (len(index),), sizes))
        if statistics and self._statistics.size:
            groups.append(self._statistics)
        return tuple(groups)


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(out, rest), which is how a kernel of four dimensions acts."""
    if len(shape) < 2:
        return (math.prod(shape),)
    return (shape[0], math.prod(shape[1:]))
