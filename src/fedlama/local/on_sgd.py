"""What rules that correct the gradient of SGD have in common.

Such a rule overrides `correct`, and where it needs to `slots`, `sync` and `merge`: FedProx is one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedlama.base import InputError
from fedlama.local.plain_sync import PlainSync
from fedlama.local.sgd import SGD
from fedlama.local.steps import StepsOption
from fedlama.rows import Slot


@dataclass(frozen=True)
class OnSGD(PlainSync):
    """Everything as `base` does it; a rule overrides what it changes.

    Arguments:
        base: The SGD that takes the steps.
    """

    base: SGD

    def __post_init__(self) -> None:
        # Two corrections of one gradient have no meaning that anybody has worked out.
        if not isinstance(self.base, SGD):
            raise InputError(
                f"{type(self).__name__} goes around an SGD, not around {type(self.base).__name__}"
            )

    @property
    def batch_size(self) -> int:
        """Samples per step."""
        return self.base.batch_size

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What each client keeps."""
        return self.base.slots

    @property
    def steps(self) -> StepsOption:
        """How many steps a client takes per base interval."""
        return self.base.steps

    def rate(self, step: int) -> float:
        """The learning rate at a global step, counted from 0."""
        return self.base.rate(step)

    def correct(
        self,
        gradient: Tensor,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
    ) -> None:
        """Change a gradient in place before `base` takes its step; by default it stays as it is.

        Arguments:
            gradient: That of the client's numbers.
            row: The client's numbers.
            own: The client's slots for these numbers.
            server: What the server sent, read-only: the anchor under "model", and the rows named in `sends`.
        """

    def step(
        self,
        row: Tensor,
        gradient: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
        *,
        rate: float,
        kernels: Tensor,
    ) -> None:
        """One local step, in place: the corrected gradient, and then the step of `base`."""
        # Before weight decay and momentum: as if the correction were a part of the loss.
        self.correct(gradient, row, own, server)
        self.base.step(row, gradient, own, server, rate=rate, kernels=kernels)

    def total_rate(self, steps: range) -> float:
        """Σ η over these steps: how far a constant gradient would move a number.

        Arguments:
            steps: Global steps.
        """
        return sum(self.rate(step) for step in steps)
