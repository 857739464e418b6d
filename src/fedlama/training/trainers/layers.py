"""A module's forward pass for several clients at once: what each kind of layer does with a stack of parameters.

Everywhere `B` is the clients of a stack and `N` the samples of a batch: an activation is [B, N, …], a parameter
[B, …its shape…].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

# One number by one: any shape will do
ELEMENTWISE = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Identity,
)
# One sample by one and without parameters: the samples of all clients are one large batch
SAMPLEWISE = (
    nn.Flatten,
    nn.Unflatten,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
)
# With parameters of their own, left to torch's vmap
VECTORISED = (nn.Conv1d, nn.Conv2d, nn.LayerNorm, nn.GroupNorm)
STACKABLE = (nn.Sequential, nn.Linear, *ELEMENTWISE, *SAMPLEWISE, *VECTORISED)


def why_not_stackable(module: nn.Module) -> str | None:
    """Why this part of a model cannot be computed for several clients at once; None if it can."""
    # The exact type: a subclass may do anything
    if type(module) not in STACKABLE:
        return f"{type(module).__name__} is not known to be the same computation in a stack"
    if isinstance(module, nn.Flatten) and module.start_dim < 1:
        return f"Flatten({module.start_dim}) mixes samples"
    if isinstance(module, nn.Unflatten) and (
        isinstance(module.dim, str) or module.dim < 1
    ):
        return f"Unflatten({module.dim!r}) may mix samples"
    return None


def stacked_forward(
    module: nn.Module, parameters: Mapping[str, Tensor], inputs: Tensor, path: str = ""
) -> Tensor:
    """The outputs of every client's copy of a module.

    Arguments:
        module: Whose parts are all stackable. Its own parameters are not used.
        parameters: The clients' parameters by name, each [B, …].
        inputs: Every client's batch, [B, N, …].
        path: Where in the model this module is, as names of parameters begin with it.

    Returns:
        Every client's outputs, [B, N, …].
    """
    if isinstance(module, nn.Sequential):
        activations = inputs
        for name, part in module.named_children():
            activations = stacked_forward(
                part, parameters, activations, f"{path}{name}."
            )
        return activations
    if isinstance(module, nn.Linear):
        return _linear(
            inputs, parameters[f"{path}weight"], parameters.get(f"{path}bias")
        )
    if isinstance(module, ELEMENTWISE):
        return module(inputs)
    if isinstance(module, SAMPLEWISE):
        return module(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])

    def forward(own: dict[str, Tensor], batch: Tensor) -> Tensor:
        return functional_call(module, own, (batch,))

    own = {name: parameters[f"{path}{name}"] for name, _ in module.named_parameters()}
    return vmap(forward)(own, inputs)


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer on the last dimension of [B, N, …, in]."""
    outputs = StackedLinear.apply(inputs.flatten(1, -2), weight, bias)
    return outputs.unflatten(1, inputs.shape[1:-1])


class StackedLinear(torch.autograd.Function):
    """Every client's linear layer: [B, N, in] · [B, out, in]ᵀ + [B, out].

    What autograd would make of the product has the kernel's gradient transposed in memory, and to add that to a row
    takes longer than to compute it. So the backward pass is written out.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        """The layer's outputs, [B, N, out]."""
        ctx.save_for_backward(inputs, weight)
        ctx.has_bias = bias is not None
        if bias is None:
            return torch.bmm(inputs, weight.transpose(1, 2))
        return torch.baddbmm(bias[:, None], inputs, weight.transpose(1, 2))

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """The gradients of inputs, kernel and bias."""
        inputs, weight = ctx.saved_tensors
        of_inputs = None
        if ctx.needs_input_grad[0]:  # not those of the first layer
            of_inputs = torch.bmm(gradient, weight)
        of_weight = torch.bmm(gradient.transpose(1, 2), inputs)
        of_bias = None
        if ctx.has_bias:
            of_bias = gradient.sum(dim=1)
        return of_inputs, of_weight, of_bias
