"""The tensors of someone else's module, and a row with the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedlama.base import InputError
from fedlama.rows import describe, statistics, trainable


class ModuleTensors:
    """What of a module is averaged. Its tensors stay where they are, so numbers are copied to a row and back.

    Arguments:
        module: The module.
        layers: What is averaged as one: each "tensor", or all tensors of one "module".
        adaptive: Patterns of the names of layers that may get a longer interval.
        buffers: Whether BatchNorm's statistics are averaged, too.
    """

    def __init__(
        self,
        module: nn.Module,
        layers: str,
        adaptive: Sequence[str] | None,
        *,
        buffers: bool,
    ) -> None:
        self.layout = describe(module, layers, adaptive)
        self.parameters = [parameter for _, parameter in trainable(module)]
        self.buffers: list[Tensor] = []
        if buffers:
            self.buffers = [buffer for _, buffer in statistics(module)]
        else:
            self.layout = replace(self.layout, statistics=(), roles=())

        # By the start of its slice: a layer knows its slices, and not whose they are.
        self._parameter_at: dict[int, nn.Parameter] = {}
        places = self.layout.tensor_slices
        for parameter, place in zip(self.parameters, places, strict=True):
            self._parameter_at[place.start] = parameter

    def check_given(
        self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]]
    ) -> None:
        """Raise InputError unless these are the module's parameters, or an optimizer's groups of them."""
        given: list[nn.Parameter] = []
        for entry in params:
            if isinstance(entry, dict):
                given += entry["params"]
            else:
                given.append(entry)
        # By identity: parameters with equal numbers are not the same.
        wanted = {id(parameter) for parameter in self.parameters}
        found = {id(parameter) for parameter in given if parameter.requires_grad}
        if found != wanted:
            raise InputError(
                f"the averager was built for a module with {len(self.parameters)} trainable parameters and was given "
                f"{len(given)} parameters that are not those: pass module.parameters() or optimizer.param_groups"
            )

    def read(self) -> Tensor:
        """A new row with the values that the module has now; mixed dtypes go into the widest."""
        first = self.parameters[0]
        dtype = first.dtype
        tensors = [*self.parameters, *self.buffers]
        for tensor in tensors:
            dtype = torch.promote_types(dtype, tensor.dtype)

        row = torch.zeros(
            self.layout.width,
            dtype=dtype,
            device=first.device,
        )
        every_layer = range(len(self.layout.layers))
        self.copy_to(row, every_layer)
        return row

    def copy_to(self, row: Tensor, layers: Iterable[int]) -> None:
        """Overwrite these layers of a row, and the statistics, by what the module has now."""
        for tensor, part in self._placed(layers):
            values = tensor.detach()
            row[part] = values.reshape(-1)

    def copy_from(self, row: Tensor, layers: Iterable[int]) -> None:
        """Overwrite the module's tensors of these layers, and its statistics, by what a row has."""
        for tensor, part in self._placed(layers):
            values = row[part].view_as(tensor)
            target = tensor.detach()
            target.copy_(values)

    def _placed(self, layers: Iterable[int]) -> Iterator[tuple[Tensor, slice]]:
        """Every tensor of these layers, and every buffer, with its place in a row."""
        for number in layers:
            layer = self.layout.layers[number]
            for part in layer.slices:
                parameter = self._parameter_at[part.start]
                yield parameter, part
        yield from zip(self.buffers, self.layout.statistics, strict=True)
