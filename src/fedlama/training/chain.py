"""Linear and elementwise layers in a row, stacked: forward and backward pass of several clients' copies, written out.

For a network this small autograd's bookkeeping costs as much as the arithmetic. A chain needs none: its backward pass
is its forward pass read from the end, and every gradient is written to its place in a row at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedlama.data import Dataset

# An elementwise layer's derivative as a function of (gradient, output)
Derivative = Callable[[Tensor, Tensor], Tensor]
DERIVATIVES: dict[type[nn.Module], Derivative] = {
    nn.ReLU: lambda gradient, output: torch.ops.aten.threshold_backward(gradient, output, 0),
    nn.Tanh: torch.ops.aten.tanh_backward,
    nn.Sigmoid: torch.ops.aten.sigmoid_backward,
}


@dataclass(frozen=True)
class Link:
    """A linear layer, by the positions of its kernel and bias among the parameters, and what follows it."""

    weight: int
    bias: int | None
    activations: tuple[nn.Module, ...]


class Chain:
    """A classifier that is a chain; `B` is the clients of a stack, `N` the samples of a batch."""

    def __init__(self, links: Sequence[Link]) -> None:
        self.links = links

    @staticmethod
    def of(module: nn.Module, names: Sequence[str], data: Dataset) -> Chain | None:
        """The module as a chain whose parameters have these names; None if it is not one."""
        children = dict(module.named_children())
        if type(module) is not nn.Sequential:
            return None
        layers = list(children.items())
        if layers and isinstance(layers[0][1], nn.Flatten):
            flatten = layers.pop(0)[1]
            if (flatten.start_dim, flatten.end_dim) != (1, -1):
                return None
        elif data.x_train.dim() != 2:
            return None
        known = all(isinstance(layer, (nn.Linear, *DERIVATIVES)) for _, layer in layers)
        return Chain(_links(layers, names)) if known and layers and isinstance(layers[0][1], nn.Linear) else None

    def backward(
        self,
        parameters: Sequence[Tensor],
        inputs: Tensor,
        targets: Tensor,
        weights_BN: Tensor,
        gradients: Sequence[Tensor],
    ) -> Tensor:
        """Write the gradient of each client's weighted loss into `gradients`; the losses.

        `parameters` and `gradients` are stacks of every tensor; the first layer needs no gradient of its input.
        """
        entering, leaving, outputs = self._forward(parameters, inputs.flatten(2))
        logarithms = torch.log_softmax(outputs, dim=2)
        targets = targets.view(*weights_BN.shape, 1)
        losses = -(logarithms.gather(2, targets).squeeze(2) * weights_BN).sum(dim=1)
        # The derivative of cross entropy: softmax minus one at the target, for each sample times its weight
        flowing = logarithms.exp_().scatter_add_(2, targets, outputs.new_full((), -1.0).expand(targets.shape))
        flowing.mul_(weights_BN[:, :, None])
        for number in reversed(range(len(self.links))):
            link = self.links[number]
            for activation, output in zip(reversed(link.activations), reversed(leaving[number]), strict=True):
                flowing = DERIVATIVES[type(activation)](flowing, output)
            torch.bmm(flowing.transpose(1, 2), entering[number], out=gradients[link.weight])
            if link.bias is not None:
                torch.sum(flowing, dim=1, out=gradients[link.bias])
            if number:
                flowing = torch.bmm(flowing, parameters[link.weight])
        return losses

    def _forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[list[Tensor], list[list[Tensor]], Tensor]:
        """What enters each linear layer, what each activation after it gives, and the outputs."""
        entering: list[Tensor] = []
        leaving: list[list[Tensor]] = []
        for link in self.links:
            entering.append(x)
            weight = parameters[link.weight].transpose(1, 2)
            x = torch.bmm(x, weight) if link.bias is None else torch.baddbmm(parameters[link.bias][:, None], x, weight)
            leaving.append([x := activation(x) for activation in link.activations])
        return entering, leaving, x


def _links(layers: Sequence[tuple[str, nn.Module]], names: Sequence[str]) -> list[Link]:
    position = {name: index for index, name in enumerate(names)}
    starts = [index for index, (_, layer) in enumerate(layers) if isinstance(layer, nn.Linear)]
    return [
        Link(
            weight=position[f"{layers[start][0]}.weight"],
            bias=position.get(f"{layers[start][0]}.bias"),
            activations=tuple(layer for _, layer in layers[start + 1 : end]),
        )
        for start, end in zip(starts, [*starts[1:], len(layers)], strict=True)
    ]
