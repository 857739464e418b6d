"""SCAFFOLD: S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh, "SCAFFOLD: Stochastic
Controlled Averaging for Federated Learning", ICML 2020 (arXiv 1910.06378), Algorithm 1 with option II.

Layer by layer: c_i of a layer changes when that layer is synchronised, by the steps it took since the time before. The
server needs no upload for its own c. Averaged over the clients, option II's c_i⁺ − c_i is (anchor − mean)/Σ η − c, and
all of that is known to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedlama.base import InputError
from fedlama.local.on_sgd import OnSGD
from fedlama.local.rule import MODEL, Taken
from fedlama.rows import Slot

CONTROL = "scaffold control"  # c_i
SERVER_CONTROL = "scaffold server control"  # c


@dataclass(frozen=True)
class Scaffold(OnSGD):
    """Each step is corrected by c − c_i, an estimate of how the client's gradient differs from everyone's.

    The server sends c with the model, which the downlink's bytes contain. Every client keeps its c_i until it returns.
    Momentum belongs into the server here (`fedlama.server.Momentum`): c_i is a mean gradient, and with local momentum
    it would be that of the velocity.

    Arguments:
        base: The SGD that takes the steps; without momentum, and with as many steps for every client.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base.momentum:
            raise InputError(
                f"scaffold corrects gradients, so local.momentum must be 0, not {self.base.momentum}: "
                f"use server.rule = 'momentum' instead"
            )
        if self.base.steps is not None:
            raise InputError(
                "scaffold's server control needs as many steps of every client: leave local.steps out"
            )

    @property
    def slots(self) -> tuple[Slot, ...]:
        """c_i."""
        # It is what the client learnt of its own data, so it must be there when the client returns.
        return (Slot(CONTROL, "run", without="choose another local.rule"),)

    @property
    def server_slots(self) -> tuple[Slot, ...]:
        """c."""
        return (Slot(SERVER_CONTROL, "run"),)

    @property
    def sends(self) -> tuple[str, ...]:
        """c."""
        return (SERVER_CONTROL,)

    def correct(
        self,
        gradient: Tensor,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
    ) -> None:
        """g ← g − c_i + c, so that the step is y ← y − η(g − c_i + c), line 10."""
        gradient.sub_(own[CONTROL])
        gradient.add_(server[SERVER_CONTROL])

    def sync(
        self,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
        *,
        steps: range,
        taken: Tensor,
    ) -> None:
        """c_i ← c_i − c + (anchor − y)/(K·η), line 12 with option II."""
        # What the client's gradient was on average, from how far its steps moved the layer
        mean_gradient = server[MODEL] - row
        mean_gradient.div_(self.total_rate(steps))
        control = own[CONTROL]
        control.sub_(server[SERVER_CONTROL])
        control.add_(mean_gradient)

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
        """c ← c + (|S|/N)·mean(c_i⁺ − c_i), line 17."""
        control = own[SERVER_CONTROL]
        mean_gradient = anchor - mean
        mean_gradient.div_(self.total_rate(steps))
        change = mean_gradient.sub_(control)
        control.add_(change, alpha=share)
        return mean
