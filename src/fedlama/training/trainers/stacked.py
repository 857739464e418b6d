"""Stacked execution: for small models, the rows of several clients *are* stacked parameters, and one vectorised forward
and backward pass steps them all.

A small model's step is mostly dispatch, so a block of clients is stepped at once; a large
convolution would be slower. Whether to stack is decided by a rule on the model, never by a timing. The last bits depend
on a stack's height, so it is always BLOCK: a block that is not full is padded with a row that nobody reads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from fedlama.core import Layout
from fedlama.data import Batches, Dataset
from fedlama.local import SGD
from fedlama.rows import Binding, trainable
from fedlama.training.chain import Chain

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


class StackedTrainer:
    """Trains clients in blocks; the rows of a block are one stack of parameters."""

    block = BLOCK

    def __init__(self, binding: Binding, batches: Batches, rule: SGD) -> None:
        self.binding, self.batches, self.rule = binding, batches, rule
        self._kernels = binding.kernel_mask()
        layout = binding.layout
        self._names = [name for name, _ in trainable(binding.module)]
        self._shapes = [parameter.shape for _, parameter in trainable(binding.module)]
        self._slices = layout.tensor_slices
        self._chain = Chain.of(binding.module, self._names, batches.data)
        self._inputs = batches.data.inputs(batches.data.x_train)  # small samples: prepare them once
        self._rows = binding.new_rows(BLOCK)
        self._memory = binding.gradient.new_zeros(BLOCK, rule.memory_rows, layout.parameter_width)
        self._gradient_BP = binding.gradient.new_zeros(BLOCK, layout.parameter_width)
        self._gradients = self._views(self._gradient_BP)

    def train(
        self, clients: list[int], rows_CP: Tensor, memory_CMP: Tensor, counters_CK: Tensor, steps: range
    ) -> Tensor:
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

    @torch.no_grad()
    def _train_block(self, clients: list[int], rows_BP: Tensor, memory_BMP: Tensor, steps: range) -> Tensor:
        parameters_BP, views = rows_BP[:, : self._gradient_BP.shape[1]], self._views(rows_BP)
        memory_MBP = memory_BMP.transpose(0, 1)
        total = torch.zeros(BLOCK, dtype=torch.float64, device=rows_BP.device)
        indices_SBN, weights_SBN = self._samples(clients, steps)
        for step, indices, weights_BN in zip(steps, indices_SBN, weights_SBN, strict=True):
            inputs, targets = self._inputs[indices], self.batches.data.y_train[indices]
            backward = self._chain.backward if self._chain else self._backward
            total += backward(views, inputs, targets, weights_BN, self._gradients)
            self.rule.update(parameters_BP, self._gradient_BP, memory_MBP, self._kernels, step)
        return total / len(steps)

    @torch.enable_grad()
    def _backward(
        self, views: list[Tensor], inputs: Tensor, targets: Tensor, weights_BN: Tensor, gradients: list[Tensor]
    ) -> Tensor:
        """Write the gradient of each client's weighted loss into `gradients`; the losses."""
        parameters = [view.detach().requires_grad_() for view in views]
        named = dict(zip(self._names, parameters, strict=True))
        module = self.binding.module
        outputs = vmap(lambda params, x: functional_call(module, params, (x,)))(named, inputs)
        each = cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
        losses = (each.view(weights_BN.shape) * weights_BN).sum(dim=1)
        for place, gradient in zip(gradients, torch.autograd.grad(losses.sum(), parameters), strict=True):
            place.copy_(gradient)
        return losses.detach()

    def _views(self, matrix: Tensor) -> list[Tensor]:
        return [matrix[:, part].view(BLOCK, *shape) for part, shape in zip(self._slices, self._shapes, strict=True)]

    def _samples(self, clients: list[int], steps: range) -> tuple[Tensor, Tensor]:
        """Sample indices and weights, [steps, block, batch]; a short batch is padded with samples of weight zero."""
        indices = np.stack([self.batches.table(client, steps) for client in clients], axis=1)
        there = indices >= 0
        weights = (there / there.sum(axis=2, keepdims=True)).astype(np.float32)
        chosen = torch.from_numpy(np.maximum(indices, 0))
        return chosen.to(self.binding.device), torch.from_numpy(weights).to(self.binding.device)
