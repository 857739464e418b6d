"""Stacked execution: for small models, the rows of several clients *are* stacked parameters, and one vectorised forward
and backward pass steps them all.

A small model's step is mostly dispatch, so a block of clients is stepped at once; a large
convolution would be slower. Whether to stack is decided by a rule on the model, never by a timing. The last bits depend
on a stack's height, so it is always BLOCK: a block that is not full is padded with a row that nobody reads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from fedlama.core import Layout
from fedlama.data import Batches, Dataset
from fedlama.local import SGD
from fedlama.rows import Binding, trainable
from fedlama.training.trainer import kernel_mask

EXECUTIONS = ("auto", "stacked", "one-by-one")
BLOCK = 8
MOST_PARAMETERS = 1 << 16
MOST_INPUTS = 1 << 10  # numbers a sample

# Modules whose forward pass is the same function of its input and parameters whoever else is in the batch
ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid)
STACKABLE = (
    *ELEMENTWISE,
    nn.Sequential,
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Flatten,
    nn.Unflatten,
    nn.Identity,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.LayerNorm,
    nn.GroupNorm,
)


def can_stack(module: nn.Module, data: Dataset, loss: object, precision: str) -> str | None:
    """None if this training can be stacked, otherwise the reason why not."""
    for part in module.modules():
        if type(part) not in STACKABLE:
            return f"{type(part).__name__} is not known to be the same computation in a stack"
    paths = [path for path, _ in module.named_modules(remove_duplicate=False)]
    if len(paths) != len(list(module.modules())):
        return "a module is used twice"
    if any(True for _ in module.buffers()):
        return "it has buffers"
    if _has_hooks(module):
        return "it has hooks"
    if loss is not cross_entropy:
        return "the loss is not the default one"
    if data.y_train.dim() != 1 or data.y_train.is_floating_point():
        return "targets are not one class a sample"
    if precision != "float32":
        return "the precision is not float32"
    if data.augment is not None:
        return "training images are augmented"
    if any(not parameter.requires_grad for parameter in module.parameters()):
        return "some parameters are frozen"
    return None


def _has_hooks(module: nn.Module) -> bool:
    """A hook is code of the user's own, and it would see a stack where it expects a batch."""
    of_modules = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(part, name) for part in module.modules() for name in of_modules) or any(
        parameter._backward_hooks or parameter._post_accumulate_grad_hooks for parameter in module.parameters()
    )


def suits_stacking(module: nn.Module, layout: Layout, data: Dataset, loss: object, precision: str) -> bool:
    """The rule behind "auto": stack what can be stacked and is so small that dispatch dominates."""
    small = sum(layout.sizes) <= MOST_PARAMETERS and data.x_train[0].numel() <= MOST_INPUTS
    return small and can_stack(module, data, loss, precision) is None


def _is_chain(module: nn.Module, data: Dataset) -> bool:
    """Whether the module is a plain sequence of linear and elementwise layers on flat samples."""
    children = list(module.children())
    if type(module) is not nn.Sequential or not children:
        return False
    flattens = isinstance(children[0], nn.Flatten) and (children[0].start_dim, children[0].end_dim) == (1, -1)
    known = (nn.Linear, nn.Identity, *ELEMENTWISE)
    rest = children[1:] if flattens else children
    return (flattens or data.x_train.dim() == 2) and all(isinstance(child, known) for child in rest)


class StackedTrainer:
    """Trains clients in blocks; the same interface as `Trainer`."""

    at_once = BLOCK

    def __init__(self, binding: Binding, batches: Batches, rule: SGD) -> None:
        self.binding, self.batches, self.rule = binding, batches, rule
        self._kernels = kernel_mask(binding)
        layout = binding.layout
        self._names = [name for name, _ in trainable(binding.module)]
        self._shapes = [parameter.shape for _, parameter in trainable(binding.module)]
        self._slices = layout.tensor_slices
        self._is_chain = _is_chain(binding.module, batches.data)
        self._inputs = batches.data.inputs(batches.data.x_train)  # small samples: prepare them once
        self._rows = binding.new_rows(BLOCK)
        self._memory = binding.gradient.new_zeros(BLOCK, rule.memory_rows, layout.parameter_width)

    def train(self, clients: list[int], rows_CP: Tensor, memory_CMP: Tensor, counters: Tensor, steps: range) -> Tensor:
        """Take these global steps on every row, in place; the mean loss of each client."""
        losses = torch.zeros(len(clients), dtype=torch.float64, device=rows_CP.device)
        for start in range(0, len(clients), BLOCK):
            part = slice(start, min(start + BLOCK, len(clients)))
            height = part.stop - part.start
            if height == BLOCK:
                losses[part] = self._train_block(clients[part], rows_CP[part], memory_CMP[part], steps)
                continue
            self._rows[:height], self._memory[:height] = rows_CP[part], memory_CMP[part]
            self._rows[height:], self._memory[height:] = rows_CP[start], 0
            padded = clients[part] + [clients[start]] * (BLOCK - height)
            losses[part] = self._train_block(padded, self._rows, self._memory, steps)[:height]
            rows_CP[part], memory_CMP[part] = self._rows[:height], self._memory[:height]
        return losses

    def _train_block(self, clients: list[int], rows_BP: Tensor, memory_BMP: Tensor, steps: range) -> Tensor:
        views = self._views(rows_BP)
        memories = [
            memory_BMP[:, :, part].transpose(0, 1).unflatten(2, shape)
            for part, shape in zip(self._slices, self._shapes, strict=True)
        ]
        parameters = dict(zip(self._names, views, strict=True))
        total = torch.zeros(BLOCK, dtype=torch.float64, device=rows_BP.device)
        indices_SBN, weights_SBN = self._samples(clients, steps)
        for step, indices, weights in zip(steps, indices_SBN, weights_SBN, strict=True):
            for view in views:
                view.requires_grad_()
            losses = self._losses(parameters, indices, weights)
            gradients = torch.autograd.grad(losses.sum(), views)
            for view, part, gradient, memory in zip(views, self._slices, gradients, memories, strict=True):
                view.requires_grad_(False)
                kernels = self._kernels[part].view(view.shape[1:])
                self.rule.update(view, gradient, memory, kernels, step)
            total += losses.detach()
        return total / len(steps)

    def _losses(self, parameters: dict[str, Tensor], indices_BN: Tensor, weights_BN: Tensor) -> Tensor:
        """Each client's mean loss over its own batch."""
        flat = indices_BN.view(-1)
        inputs = self._inputs[flat]
        inputs, targets = inputs.view(*indices_BN.shape, *inputs.shape[1:]), self.batches.data.y_train[flat]
        outputs = self._forward(parameters, inputs)
        each = cross_entropy(outputs.flatten(0, 1), targets, reduction="none")
        return (each.view(weights_BN.shape) * weights_BN).sum(dim=1)

    def _forward(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        """All clients' outputs. A chain of linear and elementwise layers is written out: vmap costs as much again."""
        module = self.binding.module
        if not self._is_chain:
            return vmap(lambda params, x: functional_call(module, params, (x,)))(parameters, inputs)
        x = inputs
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear):
                weight, bias = parameters[f"{name}.weight"].transpose(1, 2), parameters.get(f"{name}.bias")
                x = torch.bmm(x, weight) if bias is None else torch.baddbmm(bias[:, None], x, weight)
            elif isinstance(layer, nn.Flatten):
                x = x.flatten(2)
            else:
                x = layer(x)
        return x

    def _views(self, matrix: Tensor) -> list[Tensor]:
        return [matrix[:, part].view(BLOCK, *shape) for part, shape in zip(self._slices, self._shapes, strict=True)]

    def _samples(self, clients: list[int], steps: range) -> tuple[Tensor, Tensor]:
        """Sample indices and weights, [steps, block, batch]; a short batch is padded with samples of weight zero."""
        size = self.batches.batch_size
        indices = torch.zeros(len(steps), BLOCK, size, dtype=torch.int64)
        weights = torch.full((len(steps), BLOCK, size), 1 / size, dtype=torch.float32)
        for row, client in enumerate(clients):
            own = [self.batches.indices(client, step) for step in steps]
            if all(len(batch) == size for batch in own):
                indices[:, row] = torch.stack(own)
                continue
            for number, batch in enumerate(own):
                indices[number, row, : len(batch)] = batch
                weights[number, row, : len(batch)] = 1 / len(batch)
                weights[number, row, len(batch) :] = 0
        return indices.to(self.binding.device), weights.to(self.binding.device)
