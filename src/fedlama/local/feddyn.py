"""FedDyn: D. A. E. Acar, Y. Zhao, R. Matas, M. Mattina, P. Whatmough, V. Saligrama, "Federated Learning Based on
Dynamic Regularization", ICLR 2021 (arXiv 2111.04263), Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedlama.base import Limits, check_options
from fedlama.local.on_sgd import OnSGD
from fedlama.local.rule import MODEL, Taken
from fedlama.rows import Slot

GRADIENT = "feddyn gradient"  # ∇L_i at the client's last model
SERVER_SUM = "feddyn h"


@dataclass(frozen=True)
class FedDyn(OnSGD):
    """Each client's loss gets a linear and a quadratic term that make its minimum that of the whole federation.

    All of a layer refers to its last synchronised value and changes when the layer is synchronised. Every client keeps
    one row until it returns; nothing more is sent.

    Arguments:
        base: The SGD that takes the steps.
        alpha: α, the weight of the quadratic term.
    """

    alpha: Annotated[float, Limits(above=0)]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The client's gradient at its last model, beside what `base` keeps."""
        return (
            *self.base.slots,
            Slot(GRADIENT, "run", without="choose another local.rule"),
        )

    @property
    def server_slots(self) -> tuple[Slot, ...]:
        """h."""
        return (Slot(SERVER_SUM, "run"),)

    def correct(
        self,
        gradient: Tensor,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
    ) -> None:
        """The gradient of L_i(θ) − ⟨∇L_i(θ_i), θ⟩ + (α/2)‖θ − anchor‖² (Eq. 1 there)."""
        # Without this term a client would come to rest between the anchor and a minimum of its own.
        gradient.sub_(own[GRADIENT])
        gradient.add_(row - server[MODEL], alpha=self.alpha)

    def sync(
        self,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
        *,
        steps: range,
        taken: Tensor,
    ) -> None:
        """∇L_i(θ_i⁺) ← ∇L_i(θ_i) − α(θ_i⁺ − anchor)."""
        own[GRADIENT].sub_(row - server[MODEL], alpha=self.alpha)

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
        """h ← h − α·(|S|/N)·(mean − anchor), and the model becomes mean − h/α."""
        total = own[SERVER_SUM]
        total.sub_(mean - anchor, alpha=self.alpha * share)
        return mean - total / self.alpha
