"""Files that are whole or not there, and folders that one run at a time may write into."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedlama.core import InputError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file or none: to another name first, synced, then renamed."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a run's folder: a second run into it is refused. The lock goes with the process, however it ends."""
    made_here = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(f"{path} is being written by another run: wait for it, or choose another --out") from None
    try:
        yield
    finally:
        (path / ".lock").unlink(missing_ok=True)
        os.close(handle)
        if made_here:
            with suppress(OSError):  # not empty: the run began
                path.rmdir()
