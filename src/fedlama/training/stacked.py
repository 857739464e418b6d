"""Stacked execution: for small models, the rows of several clients *are* stacked parameters, and one vectorised forward
and backward pass steps them all.

A small model's step is mostly dispatch, so stepping a block of clients at once is several times faster; a large
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
STACKABLE = (
    nn.Sequential,
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Flatten,
    nn.Unflatten,
    nn.Identity,
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.LayerNorm,
    nn.GroupNorm,
)


def can_stack(module: nn.Module, data: Dataset, loss: object) -> str | None:
    """None if this training can be stacked, otherwise the reason why not."""
    for part in module.modules():
        if type(part) not in STACKABLE:
            return f"{type(part).__name__} is not known to be the same computation in a stack"
    if loss is not cross_entropy:
        return "the loss is not the default one"
    if data.augment is not None:
        return "training images are augmented"
    if any(not parameter.requires_grad for parameter in module.parameters()):
        return "some parameters are frozen"
    return None


def suits_stacking(module: nn.Module, layout: Layout, data: Dataset, loss: object) -> bool:
    """The rule behind "auto": stack what can be stacked and is so small that dispatch dominates."""
    small = sum(layout.sizes) <= MOST_PARAMETERS and data.x_train[0].numel() <= MOST_INPUTS
    return small and can_stack(module, data, loss) is None


class StackedTrainer:
    """Trains clients in blocks; the same interface as `Trainer`."""

    def __init__(self, binding: Binding, batches: Batches, rule: SGD) -> None:
        self.binding, self.batches, self.rule = binding, batches, rule
        self._kernels = kernel_mask(binding)
        layout = binding.layout
        self._names = [name for name, _ in trainable(binding.module)]
        self._shapes = [parameter.shape for _, parameter in trainable(binding.module)]
        self._slices = layout.tensor_slices
        self._rows = binding.new_rows(BLOCK)
        self._memory = torch.zeros(BLOCK, rule.memory_rows, layout.parameter_width, device=binding.device)
        self._gradient = torch.zeros(BLOCK, layout.parameter_width, device=binding.device)

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
        gradients = self._views(self._gradient)
        parameters = dict(zip(self._names, views, strict=True))
        memory_MBP, trained_BP = memory_BMP.transpose(0, 1), rows_BP[:, : self._gradient.shape[1]]
        total = torch.zeros(BLOCK, dtype=torch.float64, device=rows_BP.device)
        indices_SBN, weights_SBN = self._samples(clients, steps)
        for step, indices, weights in zip(steps, indices_SBN, weights_SBN, strict=True):
            inputs, targets = self._batch(indices)
            for view in views:
                view.requires_grad_()
            losses = self._losses(parameters, inputs, targets, weights)
            found = torch.autograd.grad(losses.sum(), views)
            for view in views:
                view.requires_grad_(False)
            torch._foreach_copy_(gradients, found)
            total += losses.detach()
            self.rule.update(trained_BP, self._gradient, memory_MBP, self._kernels, step)
        return total / len(steps)

    def _losses(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Each client's mean loss over its own batch."""
        outputs = vmap(lambda params, x: functional_call(self.binding.module, params, (x,)))(parameters, inputs)
        each = cross_entropy(outputs.flatten(0, 1), targets.flatten(0, 1), reduction="none")
        return (each.view(weights.shape) * weights).sum(dim=1)

    def _views(self, matrix: Tensor) -> list[Tensor]:
        return [matrix[:, part].view(BLOCK, *shape) for part, shape in zip(self._slices, self._shapes, strict=True)]

    def _samples(self, clients: list[int], steps: range) -> tuple[Tensor, Tensor]:
        """Sample indices and weights, [steps, block, batch]; a short batch is padded with samples of weight zero."""
        size = self.batches.batch_size
        indices = torch.empty(len(steps), BLOCK, size, dtype=torch.int64)
        weights = torch.zeros(len(steps), BLOCK, size)
        for row, client in enumerate(clients):
            for number, step in enumerate(steps):
                own = self.batches.indices(client, step)
                indices[number, row, : len(own)] = own
                indices[number, row, len(own) :] = own[0]
                weights[number, row, : len(own)] = 1 / len(own)
        return indices.to(self.binding.device), weights.to(self.binding.device)

    def _batch(self, indices_BN: Tensor) -> tuple[Tensor, Tensor]:
        data, flat = self.batches.data, indices_BN.view(-1)
        inputs = data.inputs(data.x_train[flat])
        return inputs.view(*indices_BN.shape, *inputs.shape[1:]), data.y_train[flat].view(indices_BN.shape)
