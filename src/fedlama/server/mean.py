"""The paper's server: the average is the new model (Algorithm 1, line 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedlama.rows import Slot


@dataclass(frozen=True)
class Mean:
    """The global model becomes the clients' average."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Nothing."""
        return ()

    def apply(
        self,
        anchor: Tensor,
        mean: Tensor,
        own: Mapping[str, Tensor],
        *,
        count: int,
        periods: float,
    ) -> Tensor:
        """The average itself."""
        return mean
