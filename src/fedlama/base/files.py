"""Files that a person names: opened so that a pipe cannot hang the program and a device cannot fill its memory."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from fedlama.base.errors import InputError
from fedlama.base.text import printable, shown

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # how a full disk shows
# Opening a named pipe waits for somebody to write into it, unless it is opened like this. Windows has no such pipes.
_WITHOUT_WAITING = (
    getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def open_regular(path: Path) -> BufferedReader:
    """A regular file, open for reading.

    Arguments:
        path: What to open; symbolic links are followed. A pipe, a socket or a device is refused.

    Raises InputError where it is not a regular file, and OSError where it is a folder or cannot be opened.
    """
    # Opened first and looked at then: between a look and an opening, another file could be put there.
    descriptor = os.open(path, os.O_RDONLY | _WITHOUT_WAITING)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)

    if stat.S_ISDIR(kind):
        number = errno.EISDIR
        raise IsADirectoryError(
            number,
            os.strerror(number),
            os.fspath(path),
        )
    name = printable(path)
    raise InputError(f"{name} is {_named(kind)}, not a regular file")


def read_regular(path: Path, maximum: int, what: str) -> bytes:
    """The content of a regular file.

    Arguments:
        path: What to read.
        maximum: The most bytes that are admitted; a larger file is refused before it is read.
        what: What the file ought to be, for the sentence: "a config", "a LEAF file".
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > maximum:
            raise InputError(
                f"{printable(path)} has {size:,} bytes; {what} has at most {maximum:,}"
            )
        content = file.read(size)
        # Those of /proc claim to be empty, and a file that grows would be read in part.
        if file.read(1):
            raise InputError(
                f"{printable(path)} has more bytes than it claims, so it is not read"
            )
    return content


def expand_home(path: str | Path) -> Path:
    """The `path` with ~ and ~user replaced by a home folder; InputError where there is no such user or no home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(
            f"{shown(os.fspath(path))} starts with a home folder that is not known; write the path from / on, "
            f"or set the environment variable HOME"
        ) from error


def reason(error: BaseException) -> str:
    """Why something failed, in a few words.

    Arguments:
        error: What was raised. Of an OSError the path is left out, which the sentence names already.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = type(error).__name__
    # Libraries put whole pages into their errors; some raise them without a word.
    lines = str(error).splitlines()
    if lines and lines[0]:
        text = lines[0]
    return printable(text, limit=200)


def _named(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"
