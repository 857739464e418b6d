"""FedAvgM: T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification", 2019 (arXiv 1909.06335). FedACG's look-ahead: G. Kim, J. Kim, B. Han, "Communication-Efficient
Federated Learning with Accelerated Client Gradient", CVPR 2024 (arXiv 2201.03172).

For `torch.distributed` programs this is the outer optimizer of DiLoCo: A. Douillard et al., "DiLoCo: Distributed
Low-Communication Training of Language Models", 2023 (arXiv 2311.08105), with `nesterov=True`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedlama.base import Limits, check_options
from fedlama.rows import Slot

VELOCITY = "server velocity"


@dataclass(frozen=True)
class Momentum:
    """m ← β_l·m + Δ with Δ = mean − anchor, and the model becomes anchor + rate·m.

    A layer's m advances only when the layer is synchronised, with β_l = β^(τ_l/τ'), so that it is counted in steps.

    Arguments:
        beta: β, how much of m is kept over one base interval. 0 with rate 1 is the plain average.
        rate: The server's learning rate.
        nesterov: Look ahead: the model becomes anchor + rate·(Δ + β_l·m). That is Nesterov's momentum, and with rate 1
            FedACG, whose server broadcasts a point that is ahead by β_l·m.
    """

    beta: Annotated[float, Limits(minimum=0, below=1)]
    rate: Annotated[float, Limits(above=0, maximum=1000)] = 1.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """m."""
        return (Slot(VELOCITY, "run"),)

    def apply(
        self,
        anchor: Tensor,
        mean: Tensor,
        own: Mapping[str, Tensor],
        *,
        count: int,
        periods: float,
    ) -> Tensor:
        """The new value of one due layer, or of one tensor of it."""
        if self.beta == 0 and self.rate == 1:
            # anchor + (mean − anchor) would round: this is the plain average, bit for bit.
            return mean
        kept = self.beta**periods
        change = mean - anchor
        velocity = own[VELOCITY]
        velocity.mul_(kept)
        velocity.add_(change)
        if self.nesterov:
            # FedACG's point ahead: the change of this round, and what its velocity will add to the next.
            return anchor + self.rate * (change + kept * velocity)
        return anchor + self.rate * velocity
