"""Files that are whole or not there, folders for one run at a time, and clear errors for a full disk."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from filelock import FileLock, Timeout

from fedlama.base import NO_ROOM, InputError, RunError

LOCK = ".lock"
OUT_OPTION = "--out"  # what names a run's folder on the command line
PARTIAL = ".partial"  # after the name of a file that is not whole yet
SECONDS_OF_A_LOOK = 0.1
# A link that somebody put in the place of a file of ours must not lead to a file of somebody else's.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
AT_THE_END = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside, whatever the system refuses becomes a RunError that names this file."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if error.errno not in NO_ROOM:
        return error.strerror or str(error)
    return "no space left on the device or in the quota; make room and run it again (a run goes on with --resume)"


class AtomicFile:
    """A file that is written piece by piece, and in the end is whole or not there.

    Arguments:
        path: Its name once it is whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(path.name + PARTIAL)
        with writing(path):
            self._partial.unlink(missing_ok=True)
            handle = os.open(self._partial, NEW_FILE, 0o666)
            # Nothing is held back, so closing it cannot find a full disk.
            self._file = os.fdopen(handle, "wb", buffering=0)

    def write(self, piece: bytes) -> None:
        """Add to it.

        Arguments:
            piece: The next bytes.
        """
        with writing(self.path):
            _write_all(self._file, piece)

    def finish(self) -> None:
        """It is whole: give it its name."""
        with writing(self.path):
            # Renamed before it is synced, the file could be empty after a power failure.
            os.fsync(self._file.fileno())
            self._file.close()
            self._partial.replace(self.path)

    def discard(self) -> None:
        """Leave nothing of it; where it has its name already, nothing happens."""
        with suppress(OSError):
            self._file.close()
            self._partial.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file or none: to another name first, synced, then renamed."""
    if isinstance(content, str):
        content = content.encode("utf-8")
    file = AtomicFile(path)
    try:
        file.write(content)
        file.finish()
    except BaseException:
        file.discard()
        raise


def _write_all(file: FileIO, content: bytes) -> None:
    """Write all of this; a full disk may take a part of it before it refuses the rest."""
    left = memoryview(content)
    while left:
        written = file.write(left)
        left = left[written:]


def append_line(path: Path, line: str) -> None:
    """Add a whole line at a file's end, or nothing: half a line would hide all that come after it."""
    content = line.encode("utf-8") + b"\n"
    append(path, content)


def append(path: Path, content: bytes) -> None:
    """Add all of this at a file's end, or nothing."""
    with (
        writing(path),
        os.fdopen(os.open(path, AT_THE_END, 0o666), "ab", buffering=0) as file,
    ):
        end = file.seek(0, os.SEEK_END)
        try:
            _write_all(file, content)
        except OSError:
            with suppress(OSError):
                file.truncate(end)
            raise


@dataclass(frozen=True)
class Held:
    """A folder that this process alone writes into."""

    path: Path
    handle: int  # the open folder, locked

    def is_there(self) -> bool:
        """Whether the path still leads to the folder that was locked."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self.handle))
        except OSError:
            return False

    def check(self) -> None:
        """Raise RunError if the folder was deleted or replaced: what is written now would be in another's folder."""
        if not self.is_there():
            raise RunError(
                f"{self.path} was deleted or moved while the run was writing into it: the run stopped"
            )


@contextmanager
def locked(path: Path, *, option: str = OUT_OPTION) -> Iterator[Held]:
    """Hold a run's folder: a second run into it is refused. The lock goes with the process, however it ends.

    The folder itself is locked, because the file `.lock` can be deleted: that file is for file systems that cannot lock
    a folder, and for people who look.

    Arguments:
        path: The folder, which is made if it is not there.
        option: What the user named it by, for messages.
    """
    made_here = not path.exists()
    file = FileLock(path / LOCK, timeout=SECONDS_OF_A_LOOK)
    handle = -1
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        _lock_folder(handle)
        file.acquire()
    except (BlockingIOError, Timeout):
        _close(handle)
        raise InputError(
            f"{path} is being written by another run: wait for it, or choose another {option}"
        ) from None
    except OSError as error:
        _close(handle)
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); choose another {option}"
        ) from None
    held = Held(path, handle)
    try:
        yield held
    finally:
        file.release()
        if held.is_there():
            with suppress(OSError):
                (path / LOCK).unlink(missing_ok=True)
            if made_here:
                with suppress(OSError):  # not empty: the run began
                    path.rmdir()
        os.close(handle)


def _lock_folder(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # It may be one who only looks (`is_locked`), which takes no longer than this.
        time.sleep(SECONDS_OF_A_LOOK)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass  # some network file systems lock files only


def _close(handle: int) -> None:
    if handle >= 0:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process holds this folder now; a lock file whose process was killed is only a file."""
    for name in (path, path / LOCK):
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            continue
        finally:
            os.close(handle)
    return False
