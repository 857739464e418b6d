"""What the loop asks of whoever trains this process's clients."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from fedlama.local import SGD


class Trainer(Protocol):
    """Takes local steps on clients' rows, in place.

    Attributes:
        block: How many clients are stepped together. Work is dealt to processes in whole blocks.
        rule: What a client does with a gradient.
    """

    block: int
    rule: SGD

    def train(
        self, clients: list[int], rows_CP: Tensor, memory_CMP: Tensor, counters_CK: Tensor, steps: range
    ) -> Tensor:
        """Take these steps with every one of these clients.

        Args:
            clients: Who trains, by number; C of them.
            rows_CP: Each client's model, changed in place.
            memory_CMP: What the local rule keeps for each client, changed in place.
            counters_CK: Each client's whole-number buffers, changed in place.
            steps: The global steps to take.

        Returns:
            The mean loss of every client over these steps, in float64.
        """
        ...
