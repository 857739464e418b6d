"""FedAdam: Reddi et al., "Adaptive Federated Optimization", ICLR 2021 (arXiv 2003.00295), Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedlama.server.adaptive import Adaptive


@dataclass(frozen=True)
class Adam(Adaptive):
    """v ← β₂v + (1 − β₂)Δ²; the rest as in `Adaptive`.

    Arguments:
        rate: The server's learning rate η.
        beta1: β₁, how much of m is kept over one base interval.
        beta2: β₂, how much of v is kept over one base interval.
        epsilon: What keeps steps small where v is.
    """

    def advance(self, second: Tensor, square: Tensor, kept: float) -> None:
        """A moving average of squares."""
        second.mul_(kept)
        second.add_(square, alpha=1 - kept)
