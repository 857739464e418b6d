"""State that outlives a window: the rows of every client that was seen, on disk and not in memory.

A run may have a million clients, of which each comes back rarely. Their rows lie in one file without a name, at the
place of their id. It is sparse, so clients that were never seen take no room. Processes that were forked after it was
made share it. Nothing is left behind, whatever ends the processes.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlama.base import RunError
from fedlama.rows.slots import Slot

FLOAT32 = 4  # bytes
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        self._row_bytes = FLOAT32 * width
        self._client_bytes = len(self.names) * self._row_bytes
        # One byte for each client comes first: whether it was seen.
        self._rows_start = clients
        self._folder = folder or tempfile.gettempdir()
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
        for index, name in enumerate(self.names):
            values = np.zeros(self.width, np.float32)
            # Past the end of the file nothing is read, and the zeros stay.
            self._read(values, self._place(client, index))
            into[name].copy_(torch.from_numpy(values))

    def save(self, client: int, rows: Mapping[str, Tensor]) -> None:
        """Keep a client's rows.

        Arguments:
            client: Whose.
            rows: A row for each name.
        """
        for index, name in enumerate(self.names):
            values = rows[name].detach().cpu()
            content = values.numpy().tobytes()
            self._write(content, self._place(client, index))
        self._write(b"\x01", client)

    def seen(self) -> list[int]:
        """The clients that have rows here, in ascending order."""
        content = os.pread(self._file.fileno(), self.clients, 0)
        flags = np.frombuffer(content, np.uint8)
        return np.flatnonzero(flags).tolist()

    def export(self) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float32]]]:
        """All clients seen and their rows, as a checkpoint holds them: ids, and [clients, width] for each name."""
        ids = self.seen()
        rows: dict[str, NDArray[np.float32]] = {}
        for index, name in enumerate(self.names):
            table = np.zeros((len(ids), self.width), np.float32)
            for place, client in enumerate(ids):
                self._read(table[place], self._place(client, index))
            rows[name] = table
        return np.array(ids, np.int64), rows

    def restore(
        self, ids: NDArray[np.int64], rows: Mapping[str, NDArray[np.float32]]
    ) -> None:
        """Take over what `export` gave.

        Arguments:
            ids: The clients.
            rows: Their rows, [clients, width] for each name.
        """
        for place, client in enumerate(ids.tolist()):
            own: dict[str, Tensor] = {}
            for name in self.names:
                row = rows[name][place]
                own[name] = torch.from_numpy(row)
            self.save(client, own)

    def _place(self, client: int, index: int) -> int:
        """Where in the file a client's row of one name begins."""
        own_start = self._rows_start + client * self._client_bytes
        return own_start + index * self._row_bytes

    def _read(self, values: NDArray[np.float32], place: int) -> None:
        content = os.pread(self._file.fileno(), values.nbytes, place)
        found = np.frombuffer(content, np.float32)
        values[: len(found)] = found

    def _write(self, content: bytes, place: int) -> None:
        written = 0
        with self._writing():
            while written < len(content):
                left = content[written:]
                written += os.pwrite(self._file.fileno(), left, place + written)

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
