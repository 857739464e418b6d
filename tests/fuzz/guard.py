"""What a reader of files may not do, whatever is in them: run code, start programs, write elsewhere, eat the memory.

Python reports such deeds to audit hooks, which cannot be talked out of it by the code that does them.
"""

import os
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

from fedlama.base import InputError, RunError

STARTS_SOMETHING = (
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pty.spawn",
    "pickle.find_class",
    "ctypes.dlopen",
)
CHANGES_FILES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MEMORY_FLOOR = 8 << 20  # bytes: what a reader may use beside what its file can unpack to
PAGE_FLOOR = 64 << 20  # the same where a report is drawn, with its scripts and pictures
MEMORY_A_BYTE = 2500  # deflate unpacks a byte to 1032, and there may be two copies of that


class ForbiddenError(BaseException):
    """Not an Exception: a reader that catches everything must not hide it."""


_folder: Path | None = None


def _watch(event: str, arguments: tuple) -> None:
    if _folder is None:
        return
    if event in STARTS_SOMETHING or (event == "exec" and not _is_an_import(arguments[0])):
        raise ForbiddenError(f"{event} {arguments!r:.300}")
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes) and flags & WRITES and not _inside(path):
            raise ForbiddenError(f"writes {path!r}")
    if event in CHANGES_FILES and not all(_inside(one) for one in arguments[:2] if isinstance(one, str | bytes)):
        raise ForbiddenError(f"{event} {arguments!r:.300}")


def _is_an_import(code: object) -> bool:
    """A module of an installed library that is loaded when it is first needed."""
    return getattr(code, "co_name", "") == "<module>" and Path(getattr(code, "co_filename", "")).is_file()


def _inside(path: str | bytes) -> bool:
    return _folder is not None and Path(os.fsdecode(path)).resolve().is_relative_to(_folder)


sys.addaudithook(_watch)


@contextmanager
def guarded(folder: Path, size: int, floor: int = MEMORY_FLOOR):
    """Inside, a reader of `size` bytes may write into `folder` alone, and use memory in proportion."""
    global _folder  # noqa: PLW0603 - an audit hook cannot be taken away again, so it is told when to look
    tracemalloc.start()
    _folder = folder.resolve()
    try:
        yield
    except (InputError, RunError):
        pass
    finally:
        _folder = None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    if peak > floor + MEMORY_A_BYTE * size:
        raise ForbiddenError(f"uses {peak:,} bytes of memory for a file of {size:,}")
