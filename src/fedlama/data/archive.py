"""The plain files of an untrusted .tar.gz archive, one after the other, without unpacking it to disk.

A tar archive is a sequence of headers of 512 bytes, each followed by a member's content. Extension headers (longer
names, sparse files, numbers of any length) describe the next member. Python's tarfile obeys them, at any
length and one inside the other, and can be kept busy for ever by a hundred bytes. The published archives have none,
and archives made anew have some that say nothing of interest, so here small ones are skipped and large ones refused.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedlama.base import InputError, open_regular, printable, reason

MAX_UNPACKED = 512 << 20  # bytes of a whole archive; CIFAR's have 186 million
# Bytes of a wanted member; the largest official one, CIFAR-100's train, has 155 million
MAX_FILE = 256 << 20
MAX_MEMBERS = 100
MAX_EXTENSION = 4096  # bytes of an extension header
BLOCK = 512
CHUNK = 1 << 20

PLAIN_FILES = (b"0", b"\x00")
# Pax of one member and of all, GNU's long names and links, Solaris
EXTENSIONS = (b"x", b"g", b"L", b"K", b"X")


@dataclass(frozen=True)
class ArchiveMember:
    """A header of the archive: what follows it, and how long that is."""

    name: str
    kind: bytes
    size: int


def read_archive(path: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each member that is wanted, in the archive's order.

    Arguments:
        path: A gzipped tar file. It is read to its end, where gzip's checksum is.
        wanted: Names of members, with `/` between folder and file. Others are skipped.
    """
    try:
        with open_regular(path) as packed, gzip.open(packed) as unpacked:
            stream = _Bounded(unpacked, path)
            for number, member in enumerate(_members(stream)):
                if number >= MAX_MEMBERS:
                    raise InputError(
                        f"{printable(path)} has over {MAX_MEMBERS} members, "
                        f"an official archive 9 or fewer"
                    )
                _check(path, member)
                if member.name in wanted:
                    yield member.name, _content(path, stream, member)
                else:
                    stream.skip(_padded(member.size))
            stream.skip_to_end()
    except (EOFError, OSError, zlib.error, _NotTarError) as error:
        raise InputError(
            f"{printable(path)} is not a complete .tar.gz archive ({reason(error)}); fetch it again"
        ) from error


class _NotTarError(Exception):
    """A header that is none."""


class _Bounded:
    """A stream of what is unpacked; it ends in a sentence where no official archive could be so long."""

    def __init__(self, stream: io.BufferedIOBase, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._left = MAX_UNPACKED

    def read(self, count: int) -> bytes:
        """The next bytes, `count` of them unless the archive ends before."""
        # One byte more than is left shows whether there is more.
        enough = self._left + 1
        content = self._stream.read(min(count, enough))
        self._left -= len(content)
        if self._left < 0:
            raise InputError(
                f"{printable(self._path)} unpacks to over {MAX_UNPACKED:,} bytes; "
                f"an official archive does not"
            )
        return content

    def read_exactly(self, count: int) -> bytes:
        """The next bytes, all of them."""
        content = self.read(count)
        if len(content) < count:
            raise EOFError("it ends inside a member")
        return content

    def skip(self, count: int) -> None:
        """Go on behind the next bytes, which must be there."""
        while count:
            content = self.read_exactly(min(count, CHUNK))
            count -= len(content)

    def skip_to_end(self) -> None:
        """To the end, where gzip compares its checksum."""
        while self.read(CHUNK):
            pass


def _members(stream: _Bounded) -> Iterator[ArchiveMember]:
    """The headers up to the first that is empty; whoever asks for the next has read or skipped the content."""
    while True:
        header = stream.read(BLOCK)
        if not header.strip(b"\x00"):
            return
        yield _parsed(header)


def _parsed(header: bytes) -> ArchiveMember:
    """A header in the format that is common to all kinds of tar (POSIX.1-1988, "ustar")."""
    if len(header) < BLOCK:
        raise EOFError("it ends inside a header")
    # The sum is taken as if the field that holds it were filled with spaces.
    summed = header[:148] + b" " * 8 + header[156:]
    checksum = _octal(header[148:156])
    if checksum != sum(summed):
        raise _NotTarError("a header's checksum is wrong")
    return ArchiveMember(
        name=_name(header),
        kind=header[156:157],
        size=_octal(header[124:136]),
    )


def _until_zero(field: bytes) -> str:
    text, _, _ = field.partition(b"\x00")
    return text.decode("utf-8", "surrogateescape")


def _name(header: bytes) -> str:
    """Without the slash that ends a folder's name, and the ./ that some programs begin with."""
    name = _until_zero(header[:100])
    # A path of over a hundred bytes is cut in two; only this kind of tar has a field for the first part.
    magic = header[257:263]
    if magic == b"ustar\x00":
        folder = _until_zero(header[345:500])
        if folder:
            name = f"{folder}/{name}"

    name = name.rstrip("/")
    return name.removeprefix("./")


def _octal(field: bytes) -> int:
    """At most twelve digits. Other ways to write larger numbers exist; no file of ours has that many bytes."""
    digits = field.strip(b" \x00")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise _NotTarError("a header's number is not octal")
    return int(digits, 8)


def _padded(size: int) -> int:
    """A member fills whole blocks."""
    blocks = -(-size // BLOCK)
    return blocks * BLOCK


def _check(path: Path, member: ArchiveMember) -> None:
    """Nothing is written to disk; but an archive with names that climb or start at the root is no official one."""
    name = member.name
    climbs = ".." in name.split("/")
    if name.startswith("/") or climbs:
        raise InputError(
            f"{printable(path)}: {printable(name)} leads out of the archive, "
            f"so nothing of it is read"
        )

    is_extension = member.kind in EXTENSIONS
    if is_extension and member.size > MAX_EXTENSION:
        raise InputError(
            f"{printable(path)} has an extension header of {member.size:,} bytes; "
            f"up to {MAX_EXTENSION:,} are admitted"
        )


def _content(path: Path, stream: _Bounded, member: ArchiveMember) -> bytes:
    where = f"{printable(path)}: {printable(member.name)}"
    if member.kind not in PLAIN_FILES:
        raise InputError(
            f"{where} is a link or a special file; only plain files are read"
        )
    if member.size > MAX_FILE:
        raise InputError(
            f"{where} claims {member.size:,} bytes; an official file has at most 155 million"
        )

    content = stream.read_exactly(member.size)
    padding = _padded(member.size) - member.size
    stream.skip(padding)
    return content
