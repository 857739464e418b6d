"""Observer: takes what the loop hands out, in the process that called `simulate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedlama.training.checkpoint import Checkpoint
from fedlama.training.checkpointing import Checkpointing
from fedlama.training.records import ClientScores, Record
from fedlama.training.seen_rows import Keeping, Piece


class Observer:
    """Takes what the loop hands out, in the process that called `simulate`.

    Arguments:
        on_record: Called with each record, if anybody wants to know.
        checkpointing: Where checkpoints go, and the records before the one to go on from, if anybody keeps any.
    """

    def __init__(
        self,
        on_record: Callable[[Record], None] | None,
        checkpointing: Checkpointing | None,
    ) -> None:
        self.records: list[Record] = []
        if checkpointing is not None:
            self.records += checkpointing.earlier
        self.on_record = on_record
        self.keeping: Keeping | None = None
        if checkpointing is not None:
            self.keeping = Keeping(checkpointing)
        # Of the last round, with the score of each client
        self.client_scores: ClientScores | None = None

    def take(self, item: Record | Checkpoint | Piece) -> None:
        """A round's record, or a checkpoint, or the next piece of that.

        Arguments:
            item: A record, a checkpoint, or a piece of the rows that follow one.
        """
        if isinstance(item, Checkpoint | Piece):
            assert self.keeping, "nobody asked for checkpoints"
            self.keeping.take(item)
            return

        self.client_scores = item.clients
        if item.clients is not None:
            without_scores = item.clients.without_scores()
            item = replace(item, clients=without_scores)
        self.records.append(item)
        if self.on_record:
            self.on_record(item)

    def close(self) -> None:
        """Nothing more will come."""
        if self.keeping is not None:
            self.keeping.close()
