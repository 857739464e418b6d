"""FedYogi: Reddi et al., "Adaptive Federated Optimization", ICLR 2021 (arXiv 2003.00295), Algorithm 2; the rule is of
M. Zaheer, S. Reddi, D. Sachan, S. Kale, S. Kumar, "Adaptive Methods for Nonconvex Optimization", NeurIPS 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedlama.server.adaptive import Adaptive


@dataclass(frozen=True)
class Yogi(Adaptive):
    """v ← v − (1 − β₂)Δ²·sign(v − Δ²): v grows and falls slowly. The rest as in `Adaptive`.

    Arguments:
        rate: The server's learning rate η.
        beta1: β₁, how much of m is kept over one base interval.
        beta2: β₂, how slowly v follows the squares.
        epsilon: What keeps steps small where v is.
    """

    def advance(self, second: Tensor, square: Tensor, kept: float) -> None:
        """A step towards the squares whose length does not depend on how far away v is."""
        direction = (second - square).sign()
        step = square * direction
        second.sub_(step, alpha=1 - kept)
