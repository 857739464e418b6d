"""What the loop asks of whoever trains this process's clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from fedlama.local import LocalRule


class Trainer(Protocol):
    """Takes local steps on clients' rows, in place.

    Attributes:
        block: How many clients are stepped together. Work is dealt to processes in whole blocks.
        rule: What a client does with a gradient.
    """

    block: int
    rule: LocalRule

    def train(
        self,
        clients: list[int],
        rows: Tensor,
        *,
        slots: Mapping[str, Tensor],
        counters: Tensor,
        server_rows: Mapping[str, Tensor],
        steps: range,
        local_steps: Sequence[range],
        trained: Sequence[slice] | None = None,
    ) -> Tensor:
        """Take these steps with every one of these clients.

        Arguments:
            clients: Who trains, by number.
            rows: Each client's model, [clients, width], changed in place.
            slots: What the local rule keeps for each client, [clients, width] for each name, changed in place.
            counters: Each client's whole-number buffers, [clients, counters], changed in place.
            server_rows: The server's rows that the local rule looks at, [width] for each name.
            steps: The global steps of the round.
            local_steps: The steps that each client takes itself in that time, which are the global ones for most rules.
            trained: The slices of the tensors to train; all others stay as they are (default: all tensors).

        Returns:
            The mean loss of every client over these steps, in float64; of a client that takes none, that of its next
            batch.
        """
        ...
