"""Rows of clients seen, on their way into a checkpoint and back: in pieces, because they may not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlama.base import InputError
from fedlama.core import BYTES_PER_NUMBER, PolicyState
from fedlama.rows.store import rows_per_piece
from fedlama.training.checkpoint import CLIENTS, SEEN, Checkpoint, RowsByName, Shapes
from fedlama.training.checkpoint_file import CheckpointSource, TensorFile, opened
from fedlama.training.checkpointing import Checkpointing, Sink


@dataclass(frozen=True)
class Piece:
    """The next bytes of the checkpoint that was handed out before.

    Arguments:
        content: They, of rows of clients seen.
    """

    content: bytes


@dataclass(frozen=True)
class SeenRows:
    """Some clients seen, with what is kept of them.

    Arguments:
        clients: Their numbers.
        rows: Their rows, [clients, width] for each name.
    """

    clients: NDArray[np.int64]
    rows: RowsByName


def read_seen_rows(source: CheckpointSource, shapes: Shapes) -> Iterator[SeenRows]:
    """The rows of clients seen, piece by piece; InputError for numbers that are not finite.

    Arguments:
        source: A checkpoint that `Checkpoint.decode` has accepted.
        shapes: What it fits.
    """
    with opened(source) as file:
        if CLIENTS not in file.forms:
            return
        clients = file.array(CLIENTS)
        names = shapes.seen_slots
        rows_per_client = max(1, len(names))
        client_bytes = BYTES_PER_NUMBER * shapes.width * rows_per_client
        per_piece = rows_per_piece(client_bytes)
        for first in range(0, len(clients), per_piece):
            end = first + per_piece
            of_piece = clients[first:end]
            count = len(of_piece)
            rows: dict[str, NDArray[np.float32]] = {}
            for name in names:
                rows[name] = _finite_rows(file, name, first, count)
            yield SeenRows(of_piece, rows)


def _finite_rows(
    file: TensorFile, name: str, first: int, count: int
) -> NDArray[np.float32]:
    """The rows of so many clients for one slot."""
    values = file.rows(SEEN + name, first, count)
    if not np.isfinite(values).all():
        raise InputError("it does not fit the model")
    return values


class Keeping:
    """Puts checkpoints together from what the loop hands out, and hands them on.

    Arguments:
        checkpointing: Where they go.
    """

    def __init__(self, checkpointing: Checkpointing) -> None:
        self.checkpointing = checkpointing
        self._sink: Sink | None = None
        self._left = 0  # bytes of it that are still to come

    def take(self, item: Checkpoint | Piece) -> None:
        """A checkpoint without the rows of clients seen, or the next piece of those.

        Arguments:
            item: A checkpoint, or a piece of the rows that follow it.
        """
        if isinstance(item, Checkpoint):
            self._sink = self._begin(item.policy_state)
            self._sink.write(item.encode())
            self._left = item.bytes_to_follow
        else:
            assert self._sink is not None, "pieces follow on their checkpoint"
            self._sink.write(item.content)
            self._left -= len(item.content)
        if self._left == 0:
            self._sink.finish()
            self._sink = None

    def close(self) -> None:
        """Keep nothing of a checkpoint of which no more will come."""
        if self._sink is not None:
            self._sink.discard()
            self._sink = None

    def _begin(self, state: PolicyState) -> Sink:
        if self.checkpointing.begin is not None:
            return self.checkpointing.begin(state)
        return _InMemory(self.checkpointing, state)


class _InMemory:
    """A checkpoint for a caller who takes it whole.

    Arguments:
        checkpointing: The caller's.
        state: Where the policy stands.
    """

    def __init__(self, checkpointing: Checkpointing, state: PolicyState) -> None:
        self._take = checkpointing.on_checkpoint
        self._state = state
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def finish(self) -> None:
        if self._take is not None:
            self._take(b"".join(self._pieces), self._state)

    def discard(self) -> None:
        self._pieces.clear()
