"""A model is one row of numbers; a layer is a slice of it.

`Layout.pack` lays a model's tensors out in a row: parameters first, then the statistics (BatchNorm's running means and
variances), each tensor starting at a multiple of 64 bytes. The gaps are padding: never counted, never sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# float32 numbers, 64 bytes: the last bits of a vectorised sum can depend on where its data begins
ALIGNMENT = 16


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a model.

    Arguments:
        name: Its name in the module.
        size: How many numbers it has.
        layer: The name of the layer that it belongs to (default: it is a layer by itself).
        adaptive: Whether that layer may be given another interval than the base interval.
        shape: Its dimensions (default: one, of `size` numbers).
        role: Of a statistics tensor: "mean" or "variance", where that is known.
    """

    name: str
    size: int
    layer: str = ""
    adaptive: bool = False
    shape: tuple[int, ...] = ()
    role: str = ""


@dataclass(frozen=True)
class Layer:
    """What is averaged as one.

    Arguments:
        name: The tensor's, or that of the module whose tensors these are.
        slices: Where it is in a row.
        size: dim(u_l), how many numbers those are.
        adaptive: Whether it may be given another interval than the base interval.
    """

    name: str
    slices: tuple[slice, ...]
    size: int
    adaptive: bool


@dataclass(frozen=True)
class Layout:
    """Where everything is in a row.

    Arguments:
        layers: What is averaged as one.
        tensor_slices: One per parameter tensor, in the order they were given.
        statistics: One slice per statistics tensor.
        parameter_width: How many numbers at the front of a row hold parameters, the padding between them included.
        width: How many numbers a row has.
        shapes: One per parameter tensor.
        roles: One per statistics tensor: "mean", "variance" or "".
    """

    layers: tuple[Layer, ...]
    tensor_slices: tuple[slice, ...]
    statistics: tuple[slice, ...]
    parameter_width: int
    width: int
    shapes: tuple[tuple[int, ...], ...] = ()
    roles: tuple[str, ...] = ()

    @staticmethod
    def pack(
        tensors: Sequence[TensorEntry], statistics: Sequence[TensorEntry] = ()
    ) -> Layout:
        """Lay out a model.

        Arguments:
            tensors: The parameters, which are grouped into layers by the names in their `layer`.
            statistics: BatchNorm's running means and variances.
        """
        parameter_slices, parameter_width = _place(tensors, 0)
        statistics_slices, width = _place(statistics, parameter_width)

        shapes: list[tuple[int, ...]] = []
        for tensor in tensors:
            shape = tensor.shape or (tensor.size,)
            shapes.append(shape)
        return Layout(
            layers=_group(tensors, parameter_slices),
            tensor_slices=parameter_slices,
            statistics=statistics_slices,
            parameter_width=parameter_width,
            width=width,
            shapes=tuple(shapes),
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
        size = 0
        for part in self.statistics:
            size += part.stop - part.start
        return size

    def slices_of(self, due: Iterable[int]) -> list[slice]:
        """The slices of the layers that are `due`, in the order given.

        Arguments:
            due: Numbers of layers.
        """
        slices: list[slice] = []
        for number in due:
            layer = self.layers[number]
            slices += layer.slices
        return slices

    def slices_with_statistics(self, layers: Iterable[int]) -> list[slice]:
        """The slices of these layers and then of the statistics, which travel with whatever is averaged.

        Arguments:
            layers: Their numbers.
        """
        of_layers = self.slices_of(layers)
        return [*of_layers, *self.statistics]


def _place(tensors: Sequence[TensorEntry], start: int) -> tuple[tuple[slice, ...], int]:
    """The slices of these tensors, from `start` on, and where the next one begins."""
    slices: list[slice] = []
    for tensor in tensors:
        stop = start + tensor.size
        slices.append(slice(start, stop))
        # Rounded up: what follows begins at a whole block.
        blocks = -(-tensor.size // ALIGNMENT)
        start += blocks * ALIGNMENT
    return tuple(slices), start


def _group(
    tensors: Sequence[TensorEntry], slices: Sequence[slice]
) -> tuple[Layer, ...]:
    """One layer for each name, in the order of their first tensors."""
    layers: dict[str, Layer] = {}
    for tensor, part in zip(tensors, slices, strict=True):
        name = tensor.layer or tensor.name
        if name not in layers:
            layers[name] = Layer(name, slices=(), size=0, adaptive=False)
        begun = layers[name]
        layers[name] = Layer(
            name=name,
            slices=(*begun.slices, part),
            size=begun.size + tensor.size,
            # One kernel is enough: a layer is given an interval as a whole.
            adaptive=begun.adaptive or tensor.adaptive,
        )
    return tuple(layers.values())
