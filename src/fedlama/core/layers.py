"""A model is one row of numbers; a layer is a slice of it.

`Layout.pack` lays a model's tensors out in a row: parameters first, then the statistics (BatchNorm's running means and
variances), each tensor starting at a multiple of 64 bytes. The gaps are padding: never counted, never sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ALIGNMENT = 16  # float32 numbers, 64 bytes: the last bits of a vectorised sum can depend on where its data begins


@dataclass(frozen=True)
class Tensor:
    """One tensor of a model: `layer` names the layer it belongs to, `adaptive` asks that this layer may be adapted.

    `shape` is one dimension of `size` numbers unless given. `role` of a statistics tensor is "mean" or "variance" where
    that is known.
    """

    name: str
    size: int
    layer: str = ""
    adaptive: bool = False
    shape: tuple[int, ...] = ()
    role: str = ""


@dataclass(frozen=True)
class Layer:
    """What is averaged as one: `size` numbers in `slices` of the row."""

    name: str
    slices: tuple[slice, ...]
    size: int
    adaptive: bool


@dataclass(frozen=True)
class Layout:
    """Where everything is in a row of `width` numbers, of which the first `parameter_width` hold parameters."""

    layers: tuple[Layer, ...]
    tensor_slices: tuple[slice, ...]  # one a parameter tensor, in the order they were given
    statistics: tuple[slice, ...]  # one a statistics tensor
    parameter_width: int
    width: int
    shapes: tuple[tuple[int, ...], ...] = ()  # one per parameter tensor
    roles: tuple[str, ...] = ()  # one per statistics tensor: "mean", "variance" or ""

    @staticmethod
    def pack(tensors: Sequence[Tensor], statistics: Sequence[Tensor] = ()) -> Layout:
        """Lay out parameter tensors (grouped into layers by their `layer` name) and statistics."""
        parameter_slices, parameter_width = _place(tensors, 0)
        statistics_slices, width = _place(statistics, parameter_width)
        return Layout(
            layers=_group(tensors, parameter_slices),
            tensor_slices=parameter_slices,
            statistics=statistics_slices,
            parameter_width=parameter_width,
            width=width,
            shapes=tuple(tensor.shape or (tensor.size,) for tensor in tensors),
            roles=tuple(tensor.role for tensor in statistics),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """dim(u_l) of every layer."""
        return tuple(layer.size for layer in self.layers)

    @property
    def adaptive(self) -> tuple[bool, ...]:
        """Which layers may be given another interval than the base interval."""
        return tuple(layer.adaptive for layer in self.layers)

    @property
    def statistics_size(self) -> int:
        """How many numbers the statistics hold."""
        return sum(part.stop - part.start for part in self.statistics)

    def slices_of(self, due: Iterable[int]) -> list[slice]:
        """The slices of these layers, in layer order."""
        return [part for index in due for part in self.layers[index].slices]


def _place(tensors: Sequence[Tensor], start: int) -> tuple[tuple[slice, ...], int]:
    slices: list[slice] = []
    for tensor in tensors:
        slices.append(slice(start, start + tensor.size))
        start += -(-tensor.size // ALIGNMENT) * ALIGNMENT
    return tuple(slices), start


def _group(tensors: Sequence[Tensor], slices: Sequence[slice]) -> tuple[Layer, ...]:
    members: dict[str, list[int]] = {}
    for index, tensor in enumerate(tensors):
        members.setdefault(tensor.layer or tensor.name, []).append(index)
    return tuple(
        Layer(
            name=name,
            slices=tuple(slices[index] for index in indices),
            size=sum(tensors[index].size for index in indices),
            adaptive=any(tensors[index].adaptive for index in indices),
        )
        for name, indices in members.items()
    )
