"""Point one module's parameters, gradients and statistics at rows, so that a row *is* the model."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from fedlama.core import InputError, Layout
from fedlama.core import Tensor as TensorEntry

GROUPINGS = ("tensor", "module")


def describe(module: nn.Module, layers: str = "tensor", adaptive: Sequence[str] | None = None) -> Layout:
    """The layout of a module's trainable parameters and floating-point buffers.

    A layer is a trainable tensor, or with ``layers="module"`` all tensors of one submodule. By default a layer is
    adaptive if it holds a kernel (a tensor of two or more dimensions); `adaptive` names layers by pattern instead.
    Tied weights appear once, frozen parameters not at all.
    """
    if layers not in GROUPINGS:
        raise InputError(f"layers must be one of {', '.join(GROUPINGS)}, not {layers!r}")
    parameters = trainable(module)
    if not parameters:
        raise InputError("the model has no trainable parameter")
    for name, tensor in parameters:
        if not tensor.numel():
            raise InputError(f"{name} has no elements (shape {tuple(tensor.shape)})")
    grouped = [name.rpartition(".")[0] or name if layers == "module" else name for name, _ in parameters]
    is_adaptive = None if adaptive is None else _adaptive_by_pattern(adaptive, grouped)
    entries = [
        TensorEntry(name, tensor.numel(), layer, tensor.dim() >= 2 if is_adaptive is None else is_adaptive[layer])
        for layer, (name, tensor) in zip(grouped, parameters, strict=True)
    ]
    return Layout.pack(entries, [TensorEntry(name, tensor.numel()) for name, tensor in statistics(module)])


class Binding:
    """One module whose tensors can be pointed at any row of its layout.

    Gradients are views of `gradient`, set once: `backward` adds into it. Whole-number buffers (BatchNorm's count of
    batches) cannot live in a float row; `load_counters` and `save_counters` copy them to and from a small int64 row.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        for name, tensor in [*trainable(module), *statistics(module)]:
            if tensor.dtype != torch.float32:
                raise InputError(f"{name} is {tensor.dtype}; rows are torch.float32, so build the model with .float()")
        self.module = module
        self.layout = layout
        self._tensors = [
            (tensor, part, tensor.shape)
            for (_, tensor), part in zip(
                [*trainable(module), *statistics(module)], [*layout.tensor_slices, *layout.statistics], strict=True
            )
        ]
        self._counters = [buffer for _, buffer in _buffers(module) if not buffer.is_floating_point()]
        self.counter_width = sum(buffer.numel() for buffer in self._counters)
        self.device = self._tensors[0][0].device
        self.gradient = torch.zeros(layout.parameter_width, device=self.device)
        for (_, parameter), part in zip(trainable(module), layout.tensor_slices, strict=True):
            parameter.grad = self.gradient[part].view(parameter.shape)

    def new_rows(self, count: int) -> Tensor:
        """`count` rows of zeros; the padding between slices stays zero for ever."""
        return torch.zeros(count, self.layout.width, device=self.device)

    def read(self) -> Tensor:
        """A new row with the values the module has now."""
        row = self.new_rows(1)[0]
        for tensor, part, _ in self._tensors:
            row[part] = tensor.detach().reshape(-1)
        return row

    def point_at(self, row: Tensor) -> None:
        """Make the module compute with `row`, in place: no number is copied."""
        for tensor, part, shape in self._tensors:
            tensor.data = row[part].view(shape)

    def save_counters(self, counters: Tensor) -> None:
        """Copy the module's whole-number buffers into `counters`."""
        start = 0
        for buffer in self._counters:
            counters[start : start + buffer.numel()] = buffer.reshape(-1).to(torch.int64)
            start += buffer.numel()

    def load_counters(self, counters: Tensor) -> None:
        """Copy `counters` into the module's whole-number buffers."""
        start = 0
        for buffer in self._counters:
            buffer.copy_(counters[start : start + buffer.numel()].view(buffer.shape))
            start += buffer.numel()

    def release(self) -> None:
        """Give the module tensors and gradients of its own again."""
        for tensor, _, _ in self._tensors:
            tensor.data = tensor.data.clone()
            tensor.grad = None


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that are trained, each once, in the module's order."""
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]


def _buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The buffers that belong to the model's state; non-persistent ones are constants or caches."""
    persistent = set(module.state_dict(keep_vars=True))
    return [(name, buffer) for name, buffer in module.named_buffers() if name in persistent]


def statistics(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The floating-point buffers that belong to the model's state: BatchNorm's running means and variances."""
    return [(name, buffer) for name, buffer in _buffers(module) if buffer.is_floating_point()]


def _adaptive_by_pattern(patterns: Sequence[str], layers: Sequence[str]) -> dict[str, bool]:
    if isinstance(patterns, str):
        patterns = [patterns]
    for pattern in patterns:
        if not any(fnmatchcase(layer, pattern) for layer in layers):
            raise InputError(
                f"adaptive pattern {pattern!r} matches no layer; layers are {', '.join(dict.fromkeys(layers))}"
            )
    return {layer: any(fnmatchcase(layer, pattern) for pattern in patterns) for layer in layers}
