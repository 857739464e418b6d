"""State that outlives a window: the rows of every client that was seen, on disk and not in memory.

A run may have a million clients, of which each comes back rarely. Their rows lie in one file without a name, at the
place of their id. It is sparse, so clients that were never seen take no room. Processes that were forked after it was
made share it. Nothing is left behind, whatever ends the processes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlama.base import NO_ROOM, RunError
from fedlama.core import BYTES_PER_NUMBER
from fedlama.rows.slots import Slot

Ids = NDArray[np.int64]  # of clients
RowArray = NDArray[np.float32]

SEEN = b"\x01"
# What is in memory at a time of rows that go to a checkpoint or come back
PIECE_BYTES = 8 << 20


class ClientStore:
    """Rows of slots by client id; a client that was never seen has zeros.

    Arguments:
        slots: What is kept for a client.
        clients: How many clients there are; ids are counted from 0.
        width: How many numbers a row holds.
        folder: Where the file is made (default: the folder for temporary files).
    """

    def __init__(
        self, slots: Sequence[Slot], clients: int, width: int, folder: str | None = None
    ) -> None:
        self.names = tuple(slot.name for slot in slots)
        self.clients = clients
        self.width = width

        self._row_bytes = BYTES_PER_NUMBER * width
        self._client_bytes = len(self.names) * self._row_bytes
        # One byte for each client comes first: whether it was seen.
        self._rows_start = clients

        self._folder = folder or default_folder()
        with self._writing():
            # It stays open as long as the run; without a name: the system frees it however the processes end.
            self._file = tempfile.TemporaryFile(dir=folder, prefix="fedlama-clients-")  # noqa: SIM115
            try:
                os.ftruncate(self._file.fileno(), clients)
            except OSError:
                self._file.close()
                raise

    def close(self) -> None:
        """Give the file back; this process needs it no more."""
        self._file.close()

    def load(self, client: int, into: Mapping[str, Tensor]) -> None:
        """Copy a client's rows into other tensors.

        Arguments:
            client: Whose.
            into: A tensor for each name.
        """
        for number, name in enumerate(self.names):
            # Torch wants memory that may be written to, which a bytearray is.
            content = self._row(client, number)
            values = np.frombuffer(content, np.float32)
            row = torch.from_numpy(values)
            into[name].copy_(row)

    def save(self, client: int, rows: Mapping[str, Tensor]) -> None:
        """Keep a client's rows.

        Arguments:
            client: Whose.
            rows: A row for each name.
        """
        in_memory: dict[str, RowArray] = {}
        for name in self.names:
            row = rows[name].detach()
            on_cpu = row.cpu()
            in_memory[name] = on_cpu.numpy()
        self._keep(client, in_memory)

    def seen(self) -> Ids:
        """The clients that have rows here, in ascending order."""
        flag_of_each = self._read(self.clients, place=0)
        was_seen = np.frombuffer(flag_of_each, np.bool_)
        clients = np.flatnonzero(was_seen)
        return clients.astype(np.int64)

    def pieces(self, clients: Ids) -> Iterator[bytes]:
        """The rows of some clients, all of one name before those of the next, in pieces of bounded size.

        Arguments:
            clients: Whose, in this order.
        """
        per_piece = rows_per_piece(self._row_bytes)
        starts = range(0, len(clients), per_piece)
        for number, _ in enumerate(self.names):
            for start in starts:
                end = start + per_piece
                of_piece = clients[start:end]
                yield self._rows(of_piece, number)

    def restore(self, clients: Ids, rows: Mapping[str, RowArray]) -> None:
        """Keep rows that were read back.

        Arguments:
            clients: Whose.
            rows: For each name [clients, width].
        """
        for index, client in enumerate(clients.tolist()):
            of_client: dict[str, RowArray] = {}
            for name in self.names:
                of_all = rows[name]
                of_client[name] = of_all[index]
            self._keep(client, of_client)

    def _keep(self, client: int, rows: Mapping[str, RowArray]) -> None:
        """Write a client's rows, one for each name."""
        for number, name in enumerate(self.names):
            self._write_row(client, number, rows[name])
        # Last, so that a client that counts as seen has all its rows
        self._write(SEEN, client)

    def _rows(self, clients: Ids, number: int) -> bytes:
        """The rows of some clients of the slot with this number, one behind the other."""
        rows: list[bytearray] = []
        for client in clients.tolist():
            rows.append(self._row(client, number))
        return b"".join(rows)

    def _row(self, client: int, number: int) -> bytearray:
        """A client's row of the slot with this number."""
        place = self._place(client, number)
        content = self._read(self._row_bytes, place)
        # Past the end of the file nothing is read, and those are zeros.
        missing = self._row_bytes - len(content)
        content += bytes(missing)
        return content

    def _write_row(self, client: int, number: int, row: RowArray) -> None:
        place = self._place(client, number)
        content = row.tobytes()
        self._write(content, place)

    def _place(self, client: int, number: int) -> int:
        """Where in the file a client's row of the slot with this number begins."""
        clients_before = client * self._client_bytes
        rows_before = number * self._row_bytes
        return self._rows_start + clients_before + rows_before

    def _read(self, count: int, place: int) -> bytearray:
        """What lies there, up to the end of the file."""
        file = self._file.fileno()
        content = bytearray()
        # The system may give less than it is asked for: Linux reads at most 2 GiB at a time.
        while len(content) < count:
            missing = count - len(content)
            read = os.pread(file, missing, place + len(content))
            if not read:
                break
            content += read
        return content

    def _write(self, content: bytes, place: int) -> None:
        file = self._file.fileno()
        written = 0
        with self._writing():
            # The system may take less than it is given, on a disk that is nearly full for instance.
            while written < len(content):
                left = content[written:]
                written += os.pwrite(file, left, place + written)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Inside, what the system refuses becomes a sentence about the folder, since the file has no name."""
        try:
            yield
        except OSError as error:
            reason = error.strerror
            if error.errno in NO_ROOM:
                reason = "no space left on the device or in the quota; make room, or let TMPDIR name another folder"
            raise RunError(
                f"the clients' state cannot be written to {self._folder}: {reason}"
            ) from error


def default_folder() -> str:
    """The folder for temporary files: what TMPDIR names, or the system's."""
    return tempfile.gettempdir()


def rows_per_piece(row_bytes: int) -> int:
    """How many rows of so many bytes are in memory at a time: as many as a piece holds, and at least one."""
    return max(1, PIECE_BYTES // row_bytes)
