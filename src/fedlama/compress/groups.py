"""What is coded as one in a message: each large tensor, all small tensors of the due layers together, all statistics
together.

A scale and a step cost a few bytes per group. A kernel of thousands of numbers can pay for its own; a bias of ten
cannot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedlama.compress.limits import SMALL
from fedlama.compress.numbers import SLAB, squared_norm
from fedlama.compress.statistics import Statistics
from fedlama.core import Layout

# Beside the numbers of tensors, which begin at 0
SMALL_GROUP, STATISTICS_GROUP = -1, -2


@dataclass(frozen=True, eq=False)
class TensorGroup:
    """Numbers of a row that are coded as one.

    Arguments:
        number: The tensor's, or one of the two above.
        where: A slice or an index of the row.
        shape: How the numbers are coded: a matrix, or a list.
        sizes: How many of the numbers belong to which layer, in the order in which they are coded.
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
            values = row[self.where]
            return values.view(self.shape)
        return row.index_select(0, self.where)

    def write(self, row: Tensor, values: Tensor) -> None:
        """Put these numbers into a row."""
        flat = values.reshape(-1)
        if isinstance(self.where, slice):
            row[self.where] = flat
        else:
            row.index_copy_(0, self.where, flat)

    def to_codable(self, difference: Tensor, anchor: Tensor | None) -> Tensor:
        """What is coded for these numbers of a row of differences: the numbers themselves."""
        return self.read(difference)

    def from_codable(self, decoded: Tensor, anchor: Tensor | None) -> Tensor:
        """Back to differences."""
        return decoded


@dataclass(frozen=True, eq=False)
class StatisticsGroup(TensorGroup):
    """All statistics of a model, in units that a code may mix."""

    statistics: Statistics

    def to_codable(self, difference: Tensor, anchor: Tensor | None) -> Tensor:
        """Logarithms of variances, and means in standard deviations."""
        return self.statistics.to_codable(difference, anchor)

    def from_codable(self, decoded: Tensor, anchor: Tensor | None) -> Tensor:
        """Differences of the statistics themselves."""
        return self.statistics.from_codable(decoded, anchor)


class MessageGroups:
    """The groups of a layout's messages.

    Arguments:
        layout: Where the layers are in a row.
        statistics: Where the statistics are, and what they are.
    """

    def __init__(self, layout: Layout, statistics: Statistics) -> None:
        self._statistics = StatisticsGroup(
            number=STATISTICS_GROUP,
            where=statistics.index,
            shape=(statistics.size,),
            sizes={},
            statistics=statistics,
        )
        # A layout lists tensors and layers apart; where a tensor begins tells whose it is
        owner: dict[int, int] = {}
        for index, layer in enumerate(layout.layers):
            for part in layer.slices:
                owner[part.start] = index
        # Layer, where, shape
        self._tensors: list[tuple[int, slice, tuple[int, ...]]] = []
        tensors = zip(layout.tensor_slices, layout.shapes, strict=True)
        for part, shape in tensors:
            layer = owner[part.start]
            matrix = _as_matrix(shape)
            self._tensors.append((layer, part, matrix))

    def of(self, due: Sequence[int], *, statistics: bool) -> tuple[TensorGroup, ...]:
        """The groups of a message with these layers: large tensors in the row's order, the small ones, statistics."""
        wanted = set(due)
        groups: list[TensorGroup] = []
        # A layer may have several small tensors, and they are coded in the row's order
        small_places: list[Tensor] = []
        small_sizes: dict[int, int] = {}
        for number, (layer, part, shape) in enumerate(self._tensors):
            if layer not in wanted:
                continue
            size = part.stop - part.start
            if size >= SMALL:
                large = TensorGroup(number, part, shape, {layer: size})
                groups.append(large)
                continue
            places = torch.arange(part.start, part.stop)
            small_places.append(places)
            small_sizes[layer] = small_sizes.get(layer, 0) + size

        if small_places:
            index = torch.cat(small_places)
            small = TensorGroup(
                number=SMALL_GROUP,
                where=index,
                shape=(len(index),),
                sizes=small_sizes,
            )
            groups.append(small)
        if statistics and self._statistics.size:
            groups.append(self._statistics)
        return tuple(groups)


def squares(groups: Sequence[TensorGroup], row: Tensor) -> dict[int, float]:
    """‖·‖² of each layer in these groups, in layer order, added up in float64."""
    result: dict[int, float] = {}
    others: list[TensorGroup] = []
    for group in groups:
        if not group.sizes:
            continue
        if group.size < SLAB or not group.is_large:
            others.append(group)
            continue
        (layer,) = group.sizes
        values = group.read(row).view(-1)
        _add(result, layer, squared_norm(values))

    if others:
        # Converted in one call: on some thousand numbers, calls cost more than the arithmetic.
        flat = torch.cat([group.read(row).view(-1) for group in others])
        sizes = [group.size for group in others]
        exact = flat.double().split(sizes)
        for group, values in zip(others, exact, strict=True):
            _add_squares(group, values, result)
    return dict(sorted(result.items()))


def _add_squares(group: TensorGroup, values: Tensor, result: dict[int, float]) -> None:
    """Add the squares of a group's numbers, which are given in float64, to those of its layers."""
    if group.is_large:
        (layer,) = group.sizes
        square = torch.dot(values, values)
        _add(result, layer, float(square))
        return
    # One call for all small layers, of which there are many with few numbers each.
    *before_the_last, _ = group.sizes.values()
    starts = np.cumsum([0, *before_the_last])
    each = values.square().numpy()
    sums = np.add.reduceat(each, starts)
    for layer, square in zip(group.sizes, sums.tolist(), strict=True):
        _add(result, layer, square)


def _add(result: dict[int, float], layer: int, square: float) -> None:
    """A layer may have parts in several groups."""
    before = result.get(layer, 0.0)
    result[layer] = before + square


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(out, rest), which is how a kernel of four dimensions acts."""
    if len(shape) < 2:
        return (math.prod(shape),)
    rows, *rest = shape
    return (rows, math.prod(rest))
