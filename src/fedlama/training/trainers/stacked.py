"""Stacked execution: the rows of several clients *are* stacked parameters, and one pass over a stack steps them all.

A small model's step is mostly the overhead of calling operations, so a block of clients is stepped at once. A larger
model is faster one client at a time, because its row stays in the cache from step to step. Whether to stack is decided
by a rule on the model, never by a timing. The last bits depend on a stack's height, so that follows from the model
alone, too: a block that is not full is padded with a row that nobody reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedlama.core import Layout
from fedlama.data import Batches, Dataset
from fedlama.local import LocalRule
from fedlama.rows import Binding, trainable, views
from fedlama.training.trainers.layers import stacked_forward
from fedlama.training.trainers.stackable import can_stack

Execution = Literal["auto", "stacked", "one-by-one"]
BLOCK = 8  # clients in a stack
# Of a model for which that is high enough: more processes find work in a small cohort
LOW_BLOCK = 4
LOW_FROM = 1 << 16  # parameters
MAX_PARAMETERS = 1 << 19
# A stack of large convolutions is slower than one after the other
MAX_PARAMETERS_WITH_CONVOLUTIONS = 1 << 16
MAX_INPUTS = 1 << 10  # numbers per sample


def suits_stacking(
    module: nn.Module, layout: Layout, data: Dataset, loss: object, precision: str
) -> bool:
    """The rule behind "auto": stack what can be stacked and is so small that the calls dominate.

    Arguments:
        module: What is trained.
        layout: Where its layers are in a row.
        data: What it is trained on.
        loss: The loss.
        precision: Of local steps.
    """
    limit = MAX_PARAMETERS
    for part in module.modules():
        if isinstance(part, (nn.Conv1d, nn.Conv2d)):
            limit = MAX_PARAMETERS_WITH_CONVOLUTIONS

    parameters = sum(layout.sizes)
    sample = data.x_train[0]
    if parameters > limit or sample.numel() > MAX_INPUTS:
        return False
    return can_stack(module, data, loss, precision) is None


def block_of(layout: Layout) -> int:
    """How many clients of such a model are in a stack."""
    if sum(layout.sizes) < LOW_FROM:
        return BLOCK
    return LOW_BLOCK


@dataclass
class _ClientsTensor:
    """One tensor of all clients of a block, as the local rule sees it and changes it in place."""

    part: slice  # where it is in a row
    rows: Tensor  # [block, size]
    slots: Mapping[str, Tensor]
    server_rows: Mapping[str, Tensor]
    kernels: Tensor


class StackedTrainer:
    """Trains clients in blocks; the rows of a block are one stack of parameters.

    Arguments:
        binding: The module at work in this process.
        batches: What clients are trained on.
        rule: What a client does with a gradient.
    """

    def __init__(self, binding: Binding, batches: Batches, rule: LocalRule) -> None:
        self.binding = binding
        self.batches = batches
        self.rule = rule
        self.block = block_of(binding.layout)
        self._names: list[str] = []
        self._shapes: list[torch.Size] = []
        for name, parameter in trainable(binding.module):
            self._names.append(name)
            self._shapes.append(parameter.shape)
        self._slices = binding.layout.tensor_slices
        self._kernels = binding.kernel_mask()

        # Small samples: prepare them once
        data = batches.data
        self._inputs = data.inputs(data.x_train)

        # Where a block that is not full is trained
        self._rows = binding.new_rows(self.block)
        self._slots: dict[str, Tensor] = {}
        for slot in rule.slots:
            self._slots[slot.name] = binding.new_rows(self.block)

    def train(
        self,
        clients: list[int],
        rows: Tensor,
        *,
        slots: Mapping[str, Tensor],
        counters: Tensor,
        server_rows: Mapping[str, Tensor],
        steps: range,
        local_steps: Sequence[range],
        trained: Sequence[slice] | None = None,
    ) -> Tensor:
        """Take these global steps on every client's row, in place; the mean loss of each client."""
        losses = torch.zeros(len(clients), dtype=torch.float64, device=rows.device)
        for start in range(0, len(clients), self.block):
            part = slice(start, start + self.block)
            block = clients[part]
            own: dict[str, Tensor] = {}
            for name in self._slots:
                of_all = slots[name]
                own[name] = of_all[part]

            # The last bits depend on a stack's height, so every stack is of the same
            train = self._train_block
            if len(block) < self.block:
                train = self._train_padded
            losses[part] = train(
                clients=block,
                rows=rows[part],
                own=own,
                server_rows=server_rows,
                steps=steps,
                trained=trained,
            )
        return losses

    def _train_padded(
        self,
        clients: list[int],
        rows: Tensor,
        own: Mapping[str, Tensor],
        server_rows: Mapping[str, Tensor],
        steps: range,
        trained: Sequence[slice] | None,
    ) -> Tensor:
        """A block that is not full: the first client stands in for those who are missing, and nobody reads them."""
        height = len(clients)
        missing = self.block - height
        padded = clients + [clients[0]] * missing

        self._rows[:height] = rows
        self._rows[height:] = rows[0]
        for name, values in own.items():
            slots = self._slots[name]
            slots[:height] = values
            slots[height:] = 0

        losses = self._train_block(
            clients=padded,
            rows=self._rows,
            own=self._slots,
            server_rows=server_rows,
            steps=steps,
            trained=trained,
        )

        rows.copy_(self._rows[:height])
        for name, values in own.items():
            slots = self._slots[name]
            values.copy_(slots[:height])
        return losses[:height]

    @torch.no_grad()
    def _train_block(
        self,
        clients: list[int],
        rows: Tensor,
        own: Mapping[str, Tensor],
        server_rows: Mapping[str, Tensor],
        steps: range,
        trained: Sequence[slice] | None,
    ) -> Tensor:
        tensors: list[_ClientsTensor] = []
        parameters: dict[str, Tensor] = {}
        for name, shape, part in zip(
            self._names, self._shapes, self._slices, strict=True
        ):
            tensor = self._of_clients(part, rows, own, server_rows)
            tensors.append(tensor)
            # A view of the clients' rows, and not a copy: it follows them from step to step.
            values = tensor.rows.unflatten(1, shape)
            parameters[name] = values.detach().requires_grad_()

        total = torch.zeros(self.block, dtype=torch.float64, device=rows.device)
        indices_SBN, weights_SBN = self._samples(clients, steps)
        batches = zip(steps, indices_SBN, weights_SBN, strict=True)
        for step, indices_BN, weights_BN in batches:
            losses, gradients = self._backward(parameters, indices_BN, weights_BN)
            total += losses
            rate = self.rule.rate(step)
            for tensor, gradient in zip(tensors, gradients, strict=True):
                if trained is not None and tensor.part not in trained:
                    continue
                flat = gradient.flatten(1)
                self.rule.step(
                    tensor.rows,
                    flat,
                    tensor.slots,
                    tensor.server_rows,
                    rate=rate,
                    kernels=tensor.kernels,
                )
        return total / len(steps)

    def _of_clients(
        self,
        part: slice,
        rows: Tensor,
        own: Mapping[str, Tensor],
        server_rows: Mapping[str, Tensor],
    ) -> _ClientsTensor:
        """One tensor of every client; made once per round, because slicing costs as much as a short update."""
        every_client = slice(None)
        return _ClientsTensor(
            part=part,
            rows=rows[:, part],
            slots=views(own, (every_client, part)),
            server_rows=views(server_rows, part),
            kernels=self._kernels[part],
        )

    @torch.enable_grad()
    def _backward(
        self, parameters: Mapping[str, Tensor], indices_BN: Tensor, weights_BN: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Every client's weighted loss, and the gradient of each of its tensors."""
        inputs = self._inputs[indices_BN]
        targets_BN = self.batches.data.y_train[indices_BN]
        outputs = stacked_forward(self.binding.module, parameters, inputs)
        # For cross entropy the samples of all clients are one batch
        sample_losses = cross_entropy(
            outputs.flatten(0, 1),
            targets_BN.flatten(),
            reduction="none",
        )
        # The clients do not share a parameter: the gradient of the weighted sum holds each client's own
        gradients = torch.autograd.grad(
            sample_losses,
            tuple(parameters.values()),
            grad_outputs=weights_BN.flatten(),
        )
        losses_BN = sample_losses.detach().view(weights_BN.shape)
        weighted_BN = losses_BN * weights_BN
        return weighted_BN.sum(dim=1), gradients

    def _samples(self, clients: list[int], steps: range) -> tuple[Tensor, Tensor]:
        """Sample indices and weights, [steps, block, batch]; a short batch is padded with samples of weight zero."""
        shape = (len(steps), len(clients), self.batches.batch_size)
        indices = np.empty(shape, dtype=np.int64)
        for place, client in enumerate(clients):
            indices[:, place] = self.batches.table(client, steps)

        # A short batch has −1 where there is no sample; its samples share the weight of a full one
        is_sample = indices >= 0
        samples_per_batch = is_sample.sum(axis=2, keepdims=True)
        weights = is_sample / samples_per_batch
        weights = weights.astype(np.float32)
        chosen = np.maximum(indices, 0)

        device = self.binding.device
        chosen_SBN = torch.from_numpy(chosen)
        weights_SBN = torch.from_numpy(weights)
        return chosen_SBN.to(device), weights_SBN.to(device)
