"""Files that are whole or not there, folders that one run at a time may write into, and sentences for a full disk."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedlama.base import InputError, RunError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside, whatever the system refuses is told in a sentence that names this file."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if error.errno not in NO_ROOM:
        return error.strerror or str(error)
    return "no space left on the device or in the quota; make room and run it again (a run goes on with --resume)"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file or none: to another name first, synced, then renamed."""
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        try:
            with partial.open("wb") as file:
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


def append_line(path: Path, line: str) -> None:
    """Add a whole line at a file's end, or nothing: half a line would hide all that come after it."""
    with writing(path), path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        content = line.encode("utf-8") + b"\n"
        try:
            while content:  # a full disk may take a part of it first
                content = content[file.write(content) :]
        except OSError:
            with suppress(OSError):
                file.truncate(end)
            raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a run's folder: a second run into it is refused. The lock goes with the process, however it ends."""
    made_here = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = _lock(path / ".lock")
    except BlockingIOError:
        raise InputError(f"{path} is being written by another run: wait for it, or choose another --out") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another --out") from None
    try:
        yield
    finally:
        with suppress(OSError):
            (path / ".lock").unlink(missing_ok=True)
        os.close(handle)
        if made_here:
            with suppress(OSError):  # not empty: the run began
                path.rmdir()


def _lock(path: Path) -> int:
    """The open and locked file. Its last holder may have deleted it in between: then it would lock nobody out."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_still(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Whether a process holds this folder now; a lock file whose process was killed is only a file."""
    try:
        handle = os.open(path / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
