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

    A client sends anchor + Δ_i·‖a‖₁/‖a_i‖₁ and the server multiplies the averaged difference by Σ w_i‖a_i‖₁/‖a‖₁, where
    ‖a_i‖₁ is what the client's steps since the layer's last synchronisation amount to, momentum included, and ‖a‖₁ what
    the schedule's would. So the discrepancy of Eq. 2 is between clients as if all had kept to the schedule; and where
    they do, both factors are one, and it is `base`, bit for bit. With momentum, ‖a_i‖₁ is that from rest, as in the
    paper; a velocity goes on over the synchronisations of a window, which is not counted. Clients that took no step
    since then count in the mean number of steps and not in the mean update per step.

    Arguments:
        base: The SGD that takes the steps; `steps` of it lets clients take unequal numbers.
    """

    def sync(
        self,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
        *,
        steps: range,
        taken: Tensor,
    ) -> None:
        """Scale the client's difference to what the schedule's steps would have amounted to."""
        amount = self.amount(taken.double())
        scheduled = self._scheduled(steps)
        # A client that took no step has nothing to scale.
        divisor = torch.where(taken > 0, amount, scheduled)
        factor = scheduled / divisor
        on_schedule = factor == 1
        if bool(on_schedule.all()):
            return

        anchor = server[MODEL]
        difference = row - anchor
        scaled = anchor + difference * factor.to(row.dtype)
        # A client that kept to the schedule sends its own bits, whoever else is trained by this process.
        sent = torch.where(on_schedule, row, scaled)
        row.copy_(sent)

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
        """Scale the averaged difference to what the clients' steps amount to on average, τ_eff there."""
        scheduled = self._scheduled(steps)
        factor = 1.0
        with_steps = 0.0
        all_took_some = True
        for weight, count in taken:
            amount = self._amount_of(count)
            # Exactly 1 where all kept to the schedule
            factor += weight * (amount / scheduled - 1)
            if count:
                with_steps += weight
            elif weight:
                all_took_some = False
        if not with_steps:
            return mean
        # Updates per step are averaged over those who took some
        if not all_took_some:
            factor /= with_steps
        if factor == 1:
            return mean
        return anchor + (mean - anchor) * factor

    def _scheduled(self, steps: range) -> float:
        """‖a‖₁ of a client that takes each of these steps."""
        return self._amount_of(len(steps))

    def _amount_of(self, taken: int) -> float:
        """‖a‖₁ of one client, as the tensors of several have it, to the same bits."""
        amount = self.amount(torch.tensor(taken, dtype=torch.float64))
        return float(amount)

    def amount(self, taken: Tensor) -> Tensor:
        """‖a‖₁ of so many steps `taken`: how often a constant gradient was applied, through momentum too.

        Arguments:
            taken: How many steps each client took.
        """
        beta = self.base.momentum
        if not beta:
            return taken
        # Step k of n is applied (1 − β^(n−k+1))/(1 − β) times; this is the sum over k.
        missing = beta * (1 - beta**taken) / (1 - beta)
        return (taken - missing) / (1 - beta)
