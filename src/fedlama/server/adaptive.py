"""What FedAdam and FedYogi share: S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B.
McMahan, "Adaptive Federated Optimization", ICLR 2021 (arXiv 2003.00295), Algorithm 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedlama.base import Limits, check_options
from fedlama.rows import Slot

FIRST = "first moment"
SECOND = "second moment"


@dataclass(frozen=True)
class Adaptive(ABC):
    """m ← β₁m + (1 − β₁)Δ, v by the rule's own line, and the model becomes anchor + rate·m/(√v + ε), Δ = mean − anchor.

    A layer's moments advance only when the layer is synchronised. Both β are raised to τ_l/τ', so that what is kept is
    counted in steps. v starts at ε², as τ² there.

    Arguments:
        rate: The server's learning rate η.
        beta1: β₁, how much of m is kept over one base interval.
        beta2: β₂, how much of v is kept over one base interval.
        epsilon: τ there, the adaptivity: what keeps steps small where v is.
    """

    rate: Annotated[float, Limits(above=0, maximum=1000)] = 0.01
    beta1: Annotated[float, Limits(minimum=0, below=1)] = 0.9
    beta2: Annotated[float, Limits(minimum=0, below=1)] = 0.99
    epsilon: Annotated[float, Limits(above=0, maximum=1)] = 1e-3

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """m and v."""
        return (
            Slot(FIRST, "run"),
            Slot(SECOND, "run"),
        )

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
        change = mean - anchor
        first = own[FIRST]
        second = own[SECOND]
        if count == 0:
            # All slots begin as zeros, v begins at ε²
            second.fill_(self.epsilon**2)
        first_kept = self.beta1**periods
        first.mul_(first_kept)
        first.add_(change, alpha=1 - first_kept)
        second_kept = self.beta2**periods
        self.advance(second, change.square(), second_kept)
        return anchor + self._step(first, second)

    def _step(self, first: Tensor, second: Tensor) -> Tensor:
        """rate·m/(√v + ε)."""
        scale = second.sqrt() + self.epsilon
        return self.rate * first / scale

    @abstractmethod
    def advance(self, second: Tensor, square: Tensor, kept: float) -> None:
        """Update v in place.

        Arguments:
            second: v.
            square: Δ².
            kept: β₂ for the steps that the layer took.
        """
