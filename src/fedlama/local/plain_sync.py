"""What most rules do at a synchronisation: nothing beside what Algorithm 1 does."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedlama.local.rule import Taken
from fedlama.rows import Slot


class PlainSync:
    """Clients send their numbers as they are, the server averages them, and neither keeps or sends more than that.

    A rule that does otherwise overrides `sync` for the client's part and `merge` for the server's.
    """

    @property
    def server_slots(self) -> tuple[Slot, ...]:
        """What the server keeps for this rule: nothing."""
        return ()

    @property
    def sends(self) -> tuple[str, ...]:
        """The server slots that every client is sent with the model: none."""
        return ()

    def sync(
        self,
        row: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
        *,
        steps: range,
        taken: Tensor,
    ) -> None:
        """A client sends its numbers as they are, and its slots stay its own."""

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
        """The average as it is."""
        return mean
