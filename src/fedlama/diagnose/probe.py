"""A module at one point: gradients and Hessian-vector products of clients' losses."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedlama.base import InputError, random_key
from fedlama.data import Batches
from fedlama.rows import trainable
from fedlama.training.evaluation import Loss
from fedlama.training.modules import seed_module_draws

CURVATURE_SAMPLES = 64  # of a client: its Hessian is that of its loss on so many samples


@dataclass(frozen=True)
class Gradient:
    """A gradient as one vector, and the loss where it was taken."""

    vector: Tensor
    loss: float


class Probe:
    """Looks at clients' losses as functions of a module's parameters; the module given is copied and left alone."""

    def __init__(self, module: nn.Module, batches: Batches, loss: Loss, seed: int) -> None:
        self.module = deepcopy(module).train()
        self.batches = batches
        self.loss = loss
        self.seed = seed
        self.parameters = [parameter for _, parameter in trainable(self.module)]

    @property
    def width(self) -> int:
        """How many numbers a gradient has."""
        return sum(parameter.numel() for parameter in self.parameters)

    def gradient(self, client: int, step: int) -> Gradient:
        """The stochastic gradient that a client would compute at a global step."""
        inputs, targets = self.batches.at(client, step)
        seed_module_draws(random_key(self.seed, "diagnose", client, step), inputs.device)
        loss = self.loss(self.module(inputs), targets)
        parts = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        vector = self._flat(parts)
        if not vector.isfinite().all():
            raise InputError(
                f"the gradient of client {client} at step {step} is not finite: "
                f"look at the data and at the model's first weights"
            )
        return Gradient(vector, float(loss.detach()))

    def hessian(self, client: int) -> Callable[[Tensor], Tensor]:
        """The Hessian of a client's loss on its first samples, as a function that multiplies a vector by it."""
        indices = self.batches.shards.of(client)[:CURVATURE_SAMPLES]
        inputs = self.batches.data.inputs(self.batches.data.x_train[indices])
        targets = self.batches.data.y_train[indices]
        # Dropout must drop the same units in every product, or there is no one Hessian to multiply by.
        seed_module_draws(random_key(self.seed, "diagnose", client), inputs.device)
        loss = self.loss(self.module(inputs), targets)
        first = torch.autograd.grad(loss, self.parameters, create_graph=True, allow_unused=True)
        flat = torch.cat([part.reshape(-1) for part in first if part is not None])
        used = [parameter for parameter, part in zip(self.parameters, first, strict=True) if part is not None]

        def multiply(vector: Tensor) -> Tensor:
            start = 0
            pieces: list[Tensor] = []
            for parameter, part in zip(self.parameters, first, strict=True):
                if part is not None:
                    pieces.append(vector[start : start + parameter.numel()])
                start += parameter.numel()
            second = torch.autograd.grad(flat, used, torch.cat(pieces), retain_graph=True, allow_unused=True)
            found = iter(second)
            whole = [next(found) if part is not None else None for part in first]
            return self._flat(whole)

        return multiply

    def _flat(self, parts: list[Tensor | None] | tuple[Tensor | None, ...]) -> Tensor:
        """One vector; a parameter that the loss does not depend on has zeros."""
        pieces: list[Tensor] = []
        for parameter, part in zip(self.parameters, parts, strict=True):
            if part is None:
                pieces.append(torch.zeros(parameter.numel()))
            else:
                pieces.append(part.detach().reshape(-1))
        return torch.cat(pieces)
