"""FedNova: J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor, "Tackling the Objective Inconsistency Problem in
Heterogeneous Federated Optimization", NeurIPS 2020 (arXiv 2007.07481), Eq. 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlama.local.on_sgd import OnSGD
from fedlama.local.rule import MODEL, Taken


@dataclass(frozen=True)
class FedNova(OnSGD):
    """Clients that took more steps do not count more: updates are averaged per step, then multiplied by mean steps.

    A client sends anchor + Δ_i·τ/‖a_i‖₁ and the server multiplies the averaged difference by Σ w_i‖a_i‖₁/τ, where τ is
    the number of global steps and ‖a_i‖₁ what the client's steps amount to, its momentum included. Where all clients
    take τ steps without momentum both factors are one, and it is `base`, bit for bit.

    Arguments:
        base: The SGD that takes the steps; `steps` of it lets clients take unequal numbers.
    """

    def sync(
        self, row: Tensor, own: Mapping[str, Tensor], server: Mapping[str, Tensor], *, steps: range, taken: Tensor
    ) -> None:
        """Scale the client's difference to what τ steps would have amounted to."""
        factor = len(steps) / self.amount(taken)
        if bool((factor == 1).all()):
            return
        anchor = server[MODEL]
        row.copy_(anchor + (row - anchor) * factor)

    def merge(
        self,
        anchor: Tensor,
        mean: Tensor,
        own: Mapping[str, Tensor],
        *,
        steps: range,
        taken: Taken,
        share: float,
    ) -> Tensor:
        """Scale the averaged difference to the mean number of steps."""
        effective = 0.0
        for weight, count in taken:
            effective += weight * float(self.amount(torch.tensor(count, dtype=torch.float64)))
        factor = effective / len(steps)
        if factor == 1:
            return mean
        return anchor + (mean - anchor) * factor

    def amount(self, taken: Tensor) -> Tensor:
        """‖a‖₁ of so many steps: how often a constant gradient was applied, through momentum too."""
        beta = self.base.momentum
        if not beta:
            return taken
        # Step k of n is applied (1 − β^(n−k+1))/(1 − β) times.
        return (taken - beta * (1 - beta**taken) / (1 - beta)) / (1 - beta)
