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
    kind = type(module)
    # The exact type: a subclass may do anything
    if kind not in STACKABLE:
        return f"{kind.__name__} is not known to be the same computation in a stack"
    if isinstance(module, nn.Flatten):
        if module.start_dim < 1:
            return f"Flatten({module.start_dim}) mixes samples"
    elif isinstance(module, nn.Unflatten):
        dim = module.dim
        # A name may be that of any dimension
        if isinstance(dim, str) or dim < 1:
            return f"Unflatten({dim!r}) may mix samples"
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
                part,
                parameters,
                activations,
                path=f"{path}{name}.",
            )
        return activations
    if isinstance(module, nn.Linear):
        weight = parameters[f"{path}weight"]
        bias = parameters.get(f"{path}bias")
        return _linear(inputs, weight, bias)
    if isinstance(module, ELEMENTWISE):
        return module(inputs)
    if isinstance(module, SAMPLEWISE):
        clients_and_samples = inputs.shape[:2]
        outputs = module(inputs.flatten(0, 1))
        return outputs.unflatten(0, clients_and_samples)
    return _vectorised(module, parameters, inputs, path)


def _vectorised(
    module: nn.Module, parameters: Mapping[str, Tensor], inputs: Tensor, path: str
) -> Tensor:
    """A layer that torch's vmap computes for one client after the other, in one pass."""
    own: dict[str, Tensor] = {}
    for name, _ in module.named_parameters():
        own[name] = parameters[f"{path}{name}"]

    def forward(of_client: dict[str, Tensor], batch: Tensor) -> Tensor:
        return functional_call(module, of_client, (batch,))

    for_all_clients = vmap(forward)
    return for_all_clients(own, inputs)


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer on the last dimension of [B, N, …, in]."""
    if inputs.dim() == 3:
        return StackedLinear.apply(inputs, weight, bias)
    # Whatever lies between samples and features is treated as more samples
    samples = inputs.flatten(1, -2)
    outputs = StackedLinear.apply(samples, weight, bias)
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
        transposed = weight.transpose(1, 2)
        if bias is None:
            return torch.bmm(inputs, transposed)
        # One bias per client, for all of its samples
        bias_of_samples = bias[:, None]
        return torch.baddbmm(bias_of_samples, inputs, transposed)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """The gradients of inputs, kernel and bias."""
        inputs, weight = ctx.saved_tensors

        of_inputs = None
        # Nobody asks for those of the first layer
        if ctx.needs_input_grad[0]:
            of_inputs = torch.bmm(gradient, weight)

        transposed = gradient.transpose(1, 2)
        of_weight = torch.bmm(transposed, inputs)

        of_bias = None
        if ctx.has_bias:
            of_bias = gradient.sum(dim=1)
        return of_inputs, of_weight, of_bias
