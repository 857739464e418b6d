"""A module at one point: gradients and Hessian-vector products of clients' losses."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedlama.base import InputError, random_key
from fedlama.data import Batches
from fedlama.rows import trainable
from fedlama.training.evaluation import Loss
from fedlama.training.modules import seed_module_draws

# Of a client: its Hessian is that of its loss on so many samples
CURVATURE_SAMPLES = 64


@dataclass(frozen=True)
class Gradient:
    """A gradient as one vector, and the loss where it was taken."""

    vector: Tensor
    loss: float


class Probe:
    """Looks at clients' losses as functions of a module's parameters; the module given is copied and left alone."""

    def __init__(
        self, module: nn.Module, batches: Batches, loss: Loss, seed: int
    ) -> None:
        copied = deepcopy(module)
        self.module = copied.train()
        self.batches = batches
        self.loss = loss
        self.seed = seed
        self.parameters: list[nn.Parameter] = []
        for _, parameter in trainable(self.module):
            self.parameters.append(parameter)

    @property
    def width(self) -> int:
        """How many numbers a gradient has."""
        return sum(parameter.numel() for parameter in self.parameters)

    def gradient(self, client: int, step: int) -> Gradient:
        """The stochastic gradient that a client would compute at a global step."""
        inputs, targets = self.batches.at(client, step)
        # Dropout draws what it would draw in any other diagnosis of this client and step.
        key = random_key(self.seed, "diagnose", client, step)
        seed_module_draws(key, inputs.device)
        outputs = self.module(inputs)
        loss = self.loss(outputs, targets)

        parts = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        vector = flat(parts, self.parameters)
        if not vector.isfinite().all():
            raise InputError(
                f"the gradient of client {client} at step {step} is not finite: "
                f"look at the data and at the model's first weights"
            )

        loss_there = float(loss.detach())
        return Gradient(vector, loss_there)

    def hessian(self, client: int) -> Hessian:
        """The Hessian of a client's loss on its first samples."""
        data = self.batches.data
        shards = self.batches.shards
        own = shards.of(client)
        indices = own[:CURVATURE_SAMPLES]
        samples = data.x_train[indices]
        inputs = data.inputs(samples)
        targets = data.y_train[indices]

        key = random_key(self.seed, "diagnose", client)
        seed_module_draws(key, inputs.device)
        outputs = self.module(inputs)
        loss = self.loss(outputs, targets)
        return Hessian(loss, self.parameters)


class Hessian:
    """Multiplies vectors by the second derivative of a loss; parameters that the loss ignores are left out.

    The graph of the first derivative is kept, so that all products see the same dropout, and each costs one backward
    pass.
    """

    def __init__(self, loss: Tensor, parameters: Sequence[Tensor]) -> None:
        gradients = torch.autograd.grad(
            loss,
            parameters,
            create_graph=True,
            allow_unused=True,
        )
        self.parameters: list[Tensor] = []
        pieces: list[Tensor] = []
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is None:
                continue
            piece = gradient.reshape(-1)
            pieces.append(piece)
            self.parameters.append(parameter)
        self.gradient = torch.cat(pieces)

    @property
    def width(self) -> int:
        """The length of vectors."""
        return len(self.gradient)

    def times(self, vector: Tensor) -> Tensor:
        """The Hessian times this vector."""
        parts = torch.autograd.grad(
            self.gradient,
            self.parameters,
            vector,
            retain_graph=True,
            allow_unused=True,
        )
        return flat(parts, self.parameters)


def flat(parts: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> Tensor:
    """Derivatives as one vector; where nothing depends on a parameter there are zeros."""
    pieces: list[Tensor] = []
    for parameter, part in zip(parameters, parts, strict=True):
        if part is None:
            piece = torch.zeros(parameter.numel())
        else:
            piece = part.detach().reshape(-1)
        pieces.append(piece)
    return torch.cat(pieces)
