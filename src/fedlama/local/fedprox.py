"""FedProx: T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, "Federated Optimization in Heterogeneous
Networks", MLSys 2020 (arXiv 1812.06127).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedlama.base import Limits, check_options
from fedlama.local.on_sgd import OnSGD
from fedlama.local.rule import MODEL


@dataclass(frozen=True)
class FedProx(OnSGD):
    """A spring to the anchor: the gradient of (μ/2)‖x − anchor‖² is added to that of the loss (Eq. 2 there).

    The anchor of a layer is its last synchronised value. With μ = 0 it is `base`, bit for bit.

    Arguments:
        base: The SGD that takes the steps.
        mu: μ, how strong the spring is.
    """

    mu: Annotated[float, Limits(minimum=0)]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self)

    def correct(
        self,
        gradient: Tensor,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
    ) -> None:
        """g ← g + μ(x − anchor)."""
        if self.mu:
            gradient.add_(row - server[MODEL], alpha=self.mu)
