"""What of a module is in a row: its trainable parameters and the buffers that belong to its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from fedlama.base import InputError, check_choice, shown
from fedlama.core import Layout, TensorEntry

Grouping = Literal["tensor", "module"]  # what is averaged as one layer
GROUPINGS = get_args(Grouping)
ROLES = {"running_mean": "mean", "running_var": "variance"}


@dataclass(frozen=True)
class Buffer:
    """A buffer that belongs to a model's state.

    Arguments:
        name: Its name in the module.
        tensor: What it held when the module was looked at.
        sites: Everywhere that it is registered: who owns it, under which name.
    """

    name: str
    tensor: Tensor
    sites: tuple[tuple[nn.Module, str], ...]

    @property
    def is_statistics(self) -> bool:
        """Whether it is averaged; one that starts out infinite (an attention mask) is a constant."""
        if not self.tensor.is_floating_point():
            return False
        if not self.tensor.numel():
            return False
        if self.tensor.is_meta:
            # There are no numbers to look at
            return True
        finite = self.tensor.isfinite()
        return bool(finite.all())

    @property
    def is_counter(self) -> bool:
        """Whether it holds whole numbers, which have no sensible mean."""
        if self.tensor.is_floating_point():
            return False
        return not self.tensor.is_complex()

    @property
    def value(self) -> Tensor:
        """What the module has there now."""
        owner, name = self.sites[0]
        return owner.get_buffer(name)

    def register(self, value: Tensor) -> None:
        """Put another tensor in its place, everywhere."""
        for owner, name in self.sites:
            owner._buffers[name] = value


def describe(
    module: nn.Module, layers: str = "tensor", adaptive: Sequence[str] | None = None
) -> Layout:
    """The layout of a module's trainable parameters and floating-point buffers.

    Tied weights appear once, frozen parameters not at all.

    Arguments:
        module: The module.
        layers: What is a layer: each trainable "tensor", or all tensors of one sub-"module".
        adaptive: Patterns of the names of layers that may be adapted (default: those that hold a kernel, a tensor of
            two or more dimensions).
    """
    check_choice("layers", layers, GROUPINGS)

    parameters = trainable(module)
    if not parameters:
        raise InputError("the model has no trainable parameter")
    for name, tensor in parameters:
        if not tensor.numel():
            shape = tuple(tensor.shape)
            raise InputError(f"{name} has no elements (shape {shape})")

    layer_of: dict[str, str] = {}
    for name, _ in parameters:
        layer_of[name] = _layer_name(name, layers)
    by_pattern: dict[str, bool] | None = None
    if adaptive is not None:
        by_pattern = _adaptive_by_pattern(adaptive, list(layer_of.values()))

    # By default a layer is adaptive where one of its tensors is a kernel.
    entries: list[TensorEntry] = []
    for name, tensor in parameters:
        layer = layer_of[name]
        is_adaptive = tensor.dim() >= 2
        if by_pattern is not None:
            is_adaptive = by_pattern[layer]
        entry = TensorEntry(
            name,
            tensor.numel(),
            layer,
            is_adaptive,
            shape=tuple(tensor.shape),
        )
        entries.append(entry)
    return Layout.pack(entries, _statistics_entries(module))


def _statistics_entries(module: nn.Module) -> list[TensorEntry]:
    entries: list[TensorEntry] = []
    for name, tensor in statistics(module):
        entry = TensorEntry(
            name,
            tensor.numel(),
            shape=tuple(tensor.shape),
            role=_role(name),
        )
        entries.append(entry)
    return entries


def _layer_name(parameter: str, layers: str) -> str:
    """The layer that a parameter belongs to; one of the model itself is a layer of its own."""
    if layers == "tensor":
        return parameter
    module, _, _ = parameter.rpartition(".")
    return module or parameter


def check_dtypes(module: nn.Module) -> None:
    """A row holds float32, so a model must; what no row can hold is refused."""
    for part in module.modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise InputError(
                "a scripted module cannot be pointed at rows: build the plain nn.Module"
            )
    for buffer in buffers(module):
        dtype = buffer.tensor.dtype
        if dtype.is_complex:
            raise InputError(
                f"the buffer {buffer.name} is {dtype}: register it with persistent=False, or as two floats"
            )
    for name, tensor in [*trainable(module), *statistics(module)]:
        if tensor.dtype != torch.float32:
            raise InputError(
                f"{name} is {tensor.dtype}; rows are torch.float32, so build the model with .float()"
            )


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that are trained, each once, in the module's order."""
    return [
        (name, parameter)
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    ]


def statistics(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The floating-point buffers that belong to the model's state: BatchNorm's running means and variances."""
    return [
        (buffer.name, buffer.tensor)
        for buffer in buffers(module)
        if buffer.is_statistics
    ]


def counter_width(module: nn.Module) -> int:
    """How many numbers the whole-number buffers hold."""
    width = 0
    for buffer in buffers(module):
        if buffer.is_counter:
            width += buffer.tensor.numel()
    return width


def _role(name: str) -> str:
    """What torch's norms call their buffers: a variance must stay positive, whatever a code does to it."""
    _, _, last = name.rpartition(".")
    return ROLES.get(last, "")


def buffers(module: nn.Module) -> list[Buffer]:
    """The buffers that belong to the model's state, each once; non-persistent ones are constants or caches."""
    names: dict[int, str] = {}
    tensors: dict[int, Tensor] = {}
    sites: dict[int, list[tuple[nn.Module, str]]] = {}
    for path, owner in module.named_modules():
        not_saved = owner._non_persistent_buffers_set
        for name, tensor in owner._buffers.items():
            if tensor is None or name in not_saved:
                continue
            # A tensor that is registered twice is one buffer with two sites.
            key = id(tensor)
            if key not in tensors:
                # The path of the module itself is empty.
                names[key] = f"{path}.{name}".lstrip(".")
                tensors[key] = tensor
                sites[key] = []
            sites[key].append((owner, name))

    found: list[Buffer] = []
    for key, tensor in tensors.items():
        buffer = Buffer(names[key], tensor, tuple(sites[key]))
        found.append(buffer)
    return found


def _adaptive_by_pattern(
    patterns: Sequence[str], layers: Sequence[str]
) -> dict[str, bool]:
    if isinstance(patterns, str):
        patterns = [patterns]
    if not isinstance(patterns, Sequence) or not all(
        isinstance(pattern, str) for pattern in patterns
    ):
        raise InputError(
            f"adaptive must be a list of patterns of layers' names, not {shown(patterns)}"
        )
    adaptive = dict.fromkeys(layers, False)
    for pattern in patterns:
        matching = [layer for layer in adaptive if fnmatchcase(layer, pattern)]
        if not matching:
            names = ", ".join(adaptive)
            raise InputError(
                f"adaptive pattern {shown(pattern)} matches no layer; layers are {names}"
            )
        for layer in matching:
            adaptive[layer] = True
    return adaptive
