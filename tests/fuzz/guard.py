"""What a reader of files may not do, whatever is in them.

It may not run code, start programs, write elsewhere, eat the memory or take for ever, and what it says is a sentence
that prints. Python reports deeds to audit hooks, which cannot be talked out of it by the code that does them.
"""

import os
import signal
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

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
CHANGES_FILES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.chmod",
    "os.truncate",
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Bytes: what a reader may use beside what its file can unpack to
MEMORY_FLOOR = 8 << 20
PAGE_FLOOR = 64 << 20  # the same where a report is drawn, with its scripts and pictures
# Deflate unpacks a byte to 1032, and there may be two copies of that
MEMORY_A_BYTE = 2500
MAX_COMPUTING = 10  # seconds of computing for some kilobytes
MAX_WAITING = 60  # seconds in all: who waits for a pipe computes nothing
MAX_LINES = 2  # a config may be wrong in two places
MAX_CHARACTERS = 3000


class LargestTensor(TorchDispatchMode):
    """Inside, notes the most bytes that a tensor takes: `tracemalloc` does not see torch's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, Tensor):
                self.bytes = max(self.bytes, made.untyped_storage().nbytes())
        return result


with LargestTensor():
    # At its first use torch imports what it needs for that: no memory of a reader
    torch.zeros(1)


class ForbiddenError(BaseException):
    """Not an Exception: a reader that catches everything must not hide it."""


_folder: Path | None = None


def _watch(event: str, arguments: tuple) -> None:
    if _folder is None:
        return
    if event in STARTS_SOMETHING or (
        event == "exec" and not _is_an_import(arguments[0])
    ):
        raise ForbiddenError(f"{event} {arguments!r:.300}")
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes) and flags & WRITES and not _inside(path):
            raise ForbiddenError(f"writes {path!r}")
    changed = arguments[:2]
    if event == "os.symlink":
        changed = arguments[1:2]  # what a link points at is not touched
    if event in CHANGES_FILES and not all(
        _entry_inside(one) for one in changed if isinstance(one, str | bytes)
    ):
        raise ForbiddenError(f"{event} {arguments!r:.300}")


def _is_an_import(code: object) -> bool:
    """A module of an installed library that is loaded when it is first needed."""
    return (
        getattr(code, "co_name", "") == "<module>"
        and Path(getattr(code, "co_filename", "")).is_file()
    )


def _inside(path: str | bytes) -> bool:
    """Whether what is written is in the folder, also through a link."""
    return _folder is not None and Path(os.fsdecode(path)).resolve().is_relative_to(
        _folder
    )


def _entry_inside(path: str | bytes) -> bool:
    """Whether the entry itself, not what it may point at, is in the folder."""
    place = Path(os.fsdecode(path)).absolute()
    return _folder is not None and (place.parent.resolve() / place.name).is_relative_to(
        _folder
    )


sys.addaudithook(_watch)


def check_sentence(error: Exception) -> None:
    """What a person is told: few lines, each of them prints, and none is long."""
    text = str(error)
    lines = text.split("\n")
    if not text or len(text) > MAX_CHARACTERS or len(lines) > MAX_LINES:
        raise ForbiddenError(
            f"says {len(text):,} characters in {len(lines)} lines: {text!r:.200}"
        )
    if not all(line.isprintable() for line in lines):
        raise ForbiddenError(f"says what does not print: {text!r:.300}")


@contextmanager
def limited_time():
    """Inside, whoever computes or waits for too long is interrupted."""

    def interrupt(number, frame):
        raise ForbiddenError(
            f"takes over {MAX_COMPUTING} s of computing, or {MAX_WAITING} s"
        )

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, MAX_COMPUTING),
        (signal.SIGALRM, signal.ITIMER_REAL, MAX_WAITING),
    )
    before = [signal.signal(number, interrupt) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@contextmanager
def guarded(folder: Path, size: int, floor: int = MEMORY_FLOOR):
    """Inside, a reader of `size` bytes may write into `folder` alone, and use memory and time in proportion."""
    global _folder  # noqa: PLW0603 - an audit hook cannot be taken away again, so it is told when to look
    tracemalloc.start()
    _folder = folder.resolve()
    largest = LargestTensor()
    try:
        with limited_time(), largest:
            yield
    except (InputError, RunError) as error:
        check_sentence(error)
    finally:
        _folder = None
        peak = tracemalloc.get_traced_memory()[1] + largest.bytes
        tracemalloc.stop()
    if peak > floor + MEMORY_A_BYTE * size:
        raise ForbiddenError(f"uses {peak:,} bytes of memory for a file of {size:,}")
