"""Point one module's parameters, gradients and statistics at rows, so that a row *is* the model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fedlama.base import RunError
from fedlama.core import Layout
from fedlama.rows.modules import Buffer, buffers, check_dtypes, counter_width, trainable

# A gradient that is a view of the gradient row has to be zeroed and added to. That is nothing for small tensors, whose
# updates become one operation in exchange; for one of megabytes it costs more memory traffic than the update itself.
LARGE = 1 << 16  # numbers


class Binding:
    """One module whose tensors can be pointed at any row of its layout.

    Whole-number buffers (BatchNorm's count of batches) cannot live in a float row; `load_counters` and `save_counters`
    copy them to and from a small int64 row.

    Arguments:
        module: The module.
        layout: Where its layers are in a row.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        check_dtypes(module)
        self.module = module
        self.layout = layout
        self._parameters = [parameter for _, parameter in trainable(module)]
        self._statistics: list[Buffer] = []
        self._counters: list[Buffer] = []
        for buffer in buffers(module):
            if buffer.is_statistics:
                self._statistics.append(buffer)
            elif buffer.is_counter:
                self._counters.append(buffer)
        self.counter_width = counter_width(module)

        self.device = self._parameters[0].device
        self.gradient = torch.zeros(
            layout.parameter_width,
            dtype=torch.float32,
            device=self.device,
        )
        # Of a row, together all parameters: what the local rule is called for
        self.stretches: list[slice] = []
        # Of each stretch; a large one's is autograd's
        self._gradients: list[tuple[Tensor, nn.Parameter | None]] = []
        self._bind_gradients()

        self._views: list[Tensor] = []
        self._at_start = _parameters_of(module)

    def new_rows(self, count: int) -> Tensor:
        """`count` rows of zeros; the padding between slices stays zero for ever."""
        return torch.zeros(
            count,
            self.layout.width,
            dtype=torch.float32,
            device=self.device,
        )

    def kernel_mask(self) -> Tensor:
        """A row that is 1 where a parameter belongs to a kernel (two or more dimensions) and 0 elsewhere."""
        mask = torch.zeros_like(self.gradient)
        for parameter, part in self._placed_parameters():
            is_kernel = parameter.dim() >= 2
            mask[part] = float(is_kernel)
        return mask

    def read(self) -> Tensor:
        """A new row with the values the module has now."""
        row = self.new_rows(1)[0]
        for parameter, part in self._placed_parameters():
            values = parameter.detach()
            row[part] = values.reshape(-1)
        for buffer, part in self._placed_statistics():
            values = buffer.value
            row[part] = values.reshape(-1)
        return row

    def point_at(self, row: Tensor) -> None:
        """Make the module compute with `row`, in place: no number is copied."""
        for parameter, part in self._placed_parameters():
            numbers = row[part]
            parameter.data = numbers.view(parameter.shape)
        self._views = []
        for buffer, part in self._placed_statistics():
            numbers = row[part]
            view = numbers.view(buffer.value.shape)
            buffer.register(view)
            # Kept, so that `collect` sees whether the module put another tensor there
            self._views.append(view)

    def collect(self) -> None:
        """After training: a buffer that the module replaced, rather than wrote into, is copied back to the row."""
        for buffer, view in zip(self._statistics, self._views, strict=True):
            value = buffer.value
            if value is not view:
                view.copy_(value)
                buffer.register(view)

    def check_same_parameters(self) -> None:
        """Raise RunError if the module has other parameters than at the start."""
        at_start = self._at_start
        now = _parameters_of(self.module)
        # A dictionary, and no set: which of several changes is named must not depend on the hash of its name.
        names = {**at_start, **now}
        for name in names:
            problem = _changed(at_start.get(name), now.get(name))
            if problem:
                raise _module_changed(name, problem)

    def check_unchanged(self, row: Tensor) -> None:
        """Raise RunError if the module has other parameters than at the start, or computes elsewhere than in `row`.

        A module can do so in its forward pass. What it then trains would be averaged by nobody.
        """
        self.check_same_parameters()
        parameters = trainable(self.module)
        places = self.layout.tensor_slices
        for (name, parameter), part in zip(parameters, places, strict=True):
            if parameter.data_ptr() != row[part].data_ptr():
                raise _module_changed(
                    name, "was given other numbers than those of the client that trains"
                )
            if parameter.numel() >= LARGE:
                continue
            if (
                parameter.grad is None
                or parameter.grad.data_ptr() != self.gradient[part].data_ptr()
            ):
                raise _module_changed(
                    name, "was given another gradient than the one that training reads"
                )

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
        for buffer in self._counters:
            values = buffer.value.reshape(-1)
            stop = start + len(values)
            counters[start:stop] = values.to(torch.int64)
            start = stop

    def load_counters(self, counters: Tensor) -> None:
        """Copy `counters` into the module's whole-number buffers."""
        start = 0
        for buffer in self._counters:
            values = buffer.value
            stop = start + values.numel()
            saved = counters[start:stop]
            values.copy_(saved.view(values.shape))
            start = stop

    def release(self) -> None:
        """Give the module tensors and gradients of its own again."""
        # A view would keep the whole table of rows in memory as long as the module lives.
        for parameter in self._parameters:
            parameter.data = parameter.data.clone()
            parameter.grad = None
        for buffer in self._statistics:
            own = buffer.value.clone()
            buffer.register(own)

    def _bind_gradients(self) -> None:
        """Small gradients become views of the gradient row, joined into stretches; large ones are left to autograd."""
        larges: list[nn.Parameter | None] = []
        for parameter, part in self._placed_parameters():
            if parameter.numel() >= LARGE:
                self.stretches.append(part)
                larges.append(parameter)
                continue

            gradient = self.gradient[part]
            parameter.grad = gradient.view(parameter.shape)
            goes_on = bool(larges) and larges[-1] is None
            if goes_on:
                # The padding between two tensors is zero in every row, so a stretch may reach over it.
                begun = self.stretches[-1]
                self.stretches[-1] = slice(begun.start, part.stop)
            else:
                self.stretches.append(part)
                larges.append(None)

        for part, large in zip(self.stretches, larges, strict=True):
            gradient = self.gradient[part]
            self._gradients.append((gradient, large))

    def _placed_parameters(self) -> Iterator[tuple[nn.Parameter, slice]]:
        """Every trained parameter with its place in a row."""
        return zip(self._parameters, self.layout.tensor_slices, strict=True)

    def _placed_statistics(self) -> Iterator[tuple[Buffer, slice]]:
        """Every buffer that is averaged with its place in a row."""
        return zip(self._statistics, self.layout.statistics, strict=True)


def _parameters_of(module: nn.Module) -> dict[str, tuple[nn.Parameter, bool]]:
    """Every parameter by name, and whether it is trained."""
    return {
        name: (parameter, parameter.requires_grad)
        for name, parameter in module.named_parameters()
    }


def _changed(
    before: tuple[nn.Parameter, bool] | None, now: tuple[nn.Parameter, bool] | None
) -> str | None:
    """What became of a parameter, if anything did."""
    if before is None:
        return "was not there at the start"
    if now is None:
        return "is not there any more"
    parameter_before, was_trained = before
    parameter_now, is_trained = now
    if parameter_before is not parameter_now:
        return "was replaced by another parameter"
    if was_trained and not is_trained:
        return "is frozen now"
    if is_trained and not was_trained:
        return "was frozen at the start and is trained now"
    return None


def _module_changed(name: str, problem: str) -> RunError:
    return RunError(
        f"the model changed while it was training: its parameter {name} {problem}. What is trained and averaged is "
        f"settled before the first step, so build the model as it is to stay"
    )
