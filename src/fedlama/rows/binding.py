"""Point one module's parameters, gradients and statistics at rows, so that a row *is* the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from fedlama.base import InputError, RunError, shown
from fedlama.core import Layout
from fedlama.core import Tensor as TensorEntry

Grouping = Literal["tensor", "module"]  # what is averaged as one layer
GROUPINGS = get_args(Grouping)

# A gradient that is a view of the gradient row has to be zeroed and added to. That is nothing for small tensors, whose
# updates become one operation in exchange; for one of megabytes it costs more memory traffic than the update itself.
LARGE = 1 << 16  # numbers

Sites = list[tuple[nn.Module, str]]  # where one buffer is registered: who owns it, under which name


def describe(module: nn.Module, layers: str = "tensor", adaptive: Sequence[str] | None = None) -> Layout:
    """The layout of a module's trainable parameters and floating-point buffers.

    A layer is a trainable tensor, or with ``layers="module"`` all tensors of one submodule. By default a layer is
    adaptive if it holds a kernel (a tensor of two or more dimensions); `adaptive` names layers by pattern instead.
    Tied weights appear once, frozen parameters not at all.
    """
    if not isinstance(layers, str) or layers not in GROUPINGS:
        raise InputError(f"layers must be one of {', '.join(GROUPINGS)}, not {shown(layers)}")
    parameters = trainable(module)
    if not parameters:
        raise InputError("the model has no trainable parameter")
    for name, tensor in parameters:
        if not tensor.numel():
            raise InputError(f"{name} has no elements (shape {tuple(tensor.shape)})")
    grouped = [name.rpartition(".")[0] or name if layers == "module" else name for name, _ in parameters]
    is_adaptive = None if adaptive is None else _adaptive_by_pattern(adaptive, grouped)
    entries: list[TensorEntry] = []
    for layer, (name, tensor) in zip(grouped, parameters, strict=True):
        may_adapt = tensor.dim() >= 2 if is_adaptive is None else is_adaptive[layer]
        entries.append(TensorEntry(name, tensor.numel(), layer, may_adapt, tuple(tensor.shape)))
    measured = [
        TensorEntry(name, tensor.numel(), shape=tuple(tensor.shape), role=_role(name))
        for name, tensor in statistics(module)
    ]
    return Layout.pack(entries, measured)


class Binding:
    """One module whose tensors can be pointed at any row of its layout.

    Whole-number buffers (BatchNorm's count of batches) cannot live in a float row; `load_counters` and `save_counters`
    copy them to and from a small int64 row.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        check_dtypes(module)
        self.module, self.layout = module, layout
        self._parameters = [parameter for _, parameter in trainable(module)]
        self._statistics = [sites for _, sites, buffer in _buffers(module) if _is_statistics(buffer)]
        self._counters = [sites for _, sites, buffer in _buffers(module) if _is_counter(buffer)]
        self.counter_width = counter_width(module)
        self.device = self._parameters[0].device
        self.gradient = torch.zeros(layout.parameter_width, dtype=torch.float32, device=self.device)
        self.stretches: list[slice] = []  # of a row, together all parameters: what the local rule is called for
        self._gradients: list[tuple[Tensor, nn.Parameter | None]] = []  # of each stretch; a large one's is autograd's
        self._bind_gradients()
        self._views: list[Tensor] = []
        self._at_start = _parameters_of(module)

    def new_rows(self, count: int) -> Tensor:
        """`count` rows of zeros; the padding between slices stays zero for ever."""
        return torch.zeros(count, self.layout.width, dtype=torch.float32, device=self.device)

    def kernel_mask(self) -> Tensor:
        """A row that is 1 where a parameter belongs to a kernel (two or more dimensions) and 0 elsewhere."""
        mask = torch.zeros_like(self.gradient)
        for parameter, part in zip(self._parameters, self.layout.tensor_slices, strict=True):
            mask[part] = float(parameter.dim() >= 2)
        return mask

    def read(self) -> Tensor:
        """A new row with the values the module has now."""
        row = self.new_rows(1)[0]
        for parameter, part in zip(self._parameters, self.layout.tensor_slices, strict=True):
            row[part] = parameter.detach().reshape(-1)
        for sites, part in zip(self._statistics, self.layout.statistics, strict=True):
            row[part] = _value(sites).reshape(-1)
        return row

    def point_at(self, row: Tensor) -> None:
        """Make the module compute with `row`, in place: no number is copied."""
        for parameter, part in zip(self._parameters, self.layout.tensor_slices, strict=True):
            parameter.data = row[part].view(parameter.shape)
        self._views = []
        for sites, part in zip(self._statistics, self.layout.statistics, strict=True):
            view = row[part].view(_value(sites).shape)
            self._views.append(view)
            _register(sites, view)

    def collect(self) -> None:
        """After training: a buffer that the module replaced, rather than wrote into, is copied back to the row."""
        for sites, view in zip(self._statistics, self._views, strict=True):
            if _value(sites) is not view:
                view.copy_(_value(sites))
                _register(sites, view)

    def check_same_parameters(self) -> None:
        """Raise RunError if the module has other parameters than at the start."""
        now = _parameters_of(self.module)
        for name in {**self._at_start, **now}:
            problem = _changed(self._at_start.get(name), now.get(name))
            if problem:
                raise _module_changed(name, problem)

    def check_unchanged(self, row: Tensor) -> None:
        """Raise RunError if the module has other parameters than at the start, or computes elsewhere than in `row`.

        A module can do so in its forward pass. What it then trains would be averaged by nobody.
        """
        self.check_same_parameters()
        for (name, parameter), part in zip(trainable(self.module), self.layout.tensor_slices, strict=True):
            if parameter.data_ptr() != row[part].data_ptr():
                raise _module_changed(name, "was given other numbers than those of the client that trains")
            if parameter.numel() >= LARGE:
                continue
            if parameter.grad is None or parameter.grad.data_ptr() != self.gradient[part].data_ptr():
                raise _module_changed(name, "was given another gradient than the one that training reads")

    def clear_gradients(self) -> None:
        """Before a backward pass."""
        for gradient, large in self._gradients:
            if large is None:
                gradient.zero_()
            else:
                large.grad = None

    def gradients(self) -> Iterator[Tensor]:
        """After a backward pass: the gradient of each of the `stretches`."""
        for gradient, large in self._gradients:
            if large is None:
                yield gradient
            elif large.grad is None:
                # The loss did not depend on it; the local rule may have written into this stretch before
                yield gradient.zero_()
            elif large.grad.is_sparse:
                yield large.grad.to_dense().reshape(-1)
            else:
                yield large.grad.reshape(-1)

    def save_counters(self, counters: Tensor) -> None:
        """Copy the module's whole-number buffers into `counters`."""
        start = 0
        for sites in self._counters:
            values = _value(sites).reshape(-1)
            counters[start : start + len(values)] = values.to(torch.int64)
            start += len(values)

    def load_counters(self, counters: Tensor) -> None:
        """Copy `counters` into the module's whole-number buffers."""
        start = 0
        for sites in self._counters:
            buffer = _value(sites)
            buffer.copy_(counters[start : start + buffer.numel()].view(buffer.shape))
            start += buffer.numel()

    def release(self) -> None:
        """Give the module tensors and gradients of its own again."""
        for parameter in self._parameters:
            parameter.data = parameter.data.clone()
            parameter.grad = None
        for sites in self._statistics:
            _register(sites, _value(sites).clone())

    def _bind_gradients(self) -> None:
        """Small gradients become views of the gradient row, joined into stretches; large ones are left to autograd."""
        larges: list[nn.Parameter | None] = []
        for parameter, part in zip(self._parameters, self.layout.tensor_slices, strict=True):
            if parameter.numel() >= LARGE:
                self.stretches.append(part)
                larges.append(parameter)
                continue
            parameter.grad = self.gradient[part].view(parameter.shape)
            if larges and larges[-1] is None:  # the padding between two tensors is zero in every row
                self.stretches[-1] = slice(self.stretches[-1].start, part.stop)
            else:
                self.stretches.append(part)
                larges.append(None)
        for part, large in zip(self.stretches, larges, strict=True):
            self._gradients.append((self.gradient[part], large))


def check_dtypes(module: nn.Module) -> None:
    """A row holds float32, so a model must; what no row can hold is refused."""
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise InputError("a scripted module cannot be pointed at rows: build the plain nn.Module")
    for name, _, buffer in _buffers(module):
        if buffer.is_complex():
            raise InputError(
                f"the buffer {name} is {buffer.dtype}: register it with persistent=False, or as two floats"
            )
    for name, tensor in [*trainable(module), *statistics(module)]:
        if tensor.dtype != torch.float32:
            raise InputError(f"{name} is {tensor.dtype}; rows are torch.float32, so build the model with .float()")


def trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that are trained, each once, in the module's order."""
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]


def statistics(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The floating-point buffers that belong to the model's state: BatchNorm's running means and variances."""
    return [(name, buffer) for name, _, buffer in _buffers(module) if _is_statistics(buffer)]


def counter_width(module: nn.Module) -> int:
    """How many numbers the whole-number buffers hold."""
    return sum(buffer.numel() for _, _, buffer in _buffers(module) if _is_counter(buffer))


def _is_statistics(buffer: Tensor) -> bool:
    """A buffer that starts out infinite (an attention mask) is a constant: no mean of it would mean anything."""
    if not buffer.is_floating_point() or not buffer.numel():
        return False
    return buffer.is_meta or bool(buffer.isfinite().all())


def _role(name: str) -> str:
    """What torch's norms call their buffers: a variance must stay positive, whatever a code does to it."""
    return {"running_mean": "mean", "running_var": "variance"}.get(name.rpartition(".")[2], "")


def _is_counter(buffer: Tensor) -> bool:
    return not buffer.is_floating_point() and not buffer.is_complex()


def _buffers(module: nn.Module) -> list[tuple[str, Sites, Tensor]]:
    """The buffers that belong to the model's state, each once; non-persistent ones are constants or caches."""
    found: dict[int, tuple[str, Sites, Tensor]] = {}
    for path, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and name not in owner._non_persistent_buffers_set:
                full_name = f"{path}.{name}" if path else name
                found.setdefault(id(buffer), (full_name, [], buffer))[1].append((owner, name))
    return list(found.values())


def _value(sites: Sites) -> Tensor:
    owner, name = sites[0]
    return owner.get_buffer(name)


def _register(sites: Sites, value: Tensor) -> None:
    for owner, name in sites:
        owner._buffers[name] = value


def _parameters_of(module: nn.Module) -> dict[str, tuple[nn.Parameter, bool]]:
    """Every parameter by name, and whether it is trained."""
    return {name: (parameter, parameter.requires_grad) for name, parameter in module.named_parameters()}


def _changed(before: tuple[nn.Parameter, bool] | None, now: tuple[nn.Parameter, bool] | None) -> str | None:
    """What became of a parameter, if anything did."""
    if before is None:
        return "was not there at the start"
    if now is None:
        return "is not there any more"
    if before[0] is not now[0]:
        return "was replaced by another parameter"
    if before[1] and not now[1]:
        return "is frozen now"
    if now[1] and not before[1]:
        return "was frozen at the start and is trained now"
    return None


def _module_changed(name: str, problem: str) -> RunError:
    return RunError(
        f"the model changed while it was training: its parameter {name} {problem}. What is trained and averaged is "
        f"settled before the first step, so build the model as it is to stay"
    )


def _adaptive_by_pattern(patterns: Sequence[str], layers: Sequence[str]) -> dict[str, bool]:
    if isinstance(patterns, str):
        patterns = [patterns]
    if not isinstance(patterns, Sequence) or not all(isinstance(pattern, str) for pattern in patterns):
        raise InputError(f"adaptive must be a list of patterns of layers' names, not {shown(patterns)}")
    for pattern in patterns:
        if not any(fnmatchcase(layer, pattern) for layer in layers):
            names = ", ".join(dict.fromkeys(layers))
            raise InputError(f"adaptive pattern {shown(pattern)} matches no layer; layers are {names}")
    return {layer: any(fnmatchcase(layer, pattern) for pattern in patterns) for layer in layers}
