"""Bytes on the wire, whatever they hold: read from the front, whole numbers, format and checksum."""

from __future__ import annotations

import struct
import zlib

from fedlama.base import InputError

VERSION = 1
SEAL = 4  # bytes of the checksum at the end


class Reader:
    """Bytes taken from the front; too few of them are refused before anything is made of them.

    Arguments:
        content: All of the bytes.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes.

        Arguments:
            count: How many; fewer that are left are refused.
        """
        left = len(self._content) - self._at
        if count > left:
            raise InputError(f"{count} bytes should follow, but only {left} are left")
        start = self._at
        self._at += count
        return self._content[start : self._at]

    def rest(self) -> bytes:
        """All that is left."""
        left = len(self._content) - self._at
        return self.take(left)

    def whole_number(self) -> int:
        """A whole number in groups of seven bits, the lowest first."""
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            seven_bits = byte & 127
            value |= seven_bits << shift
            # The top bit says whether another byte follows
            if byte < 128:
                return value
        raise InputError("a whole number is longer than 63 bits")


def whole_number(value: int) -> bytes:
    """What `Reader.whole_number` reads."""
    result = bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    result.append(value)
    return bytes(result)


def sealed(content: bytes, context: str) -> bytes:
    """The content and a checksum over it and over what both ends know."""
    of_context = zlib.crc32(context.encode())
    checksum = zlib.crc32(content, of_context)
    return content + struct.pack("<I", checksum)


def unsealed(content: bytes, context: str) -> bytes:
    """The content without its checksum, if that is right."""
    if len(content) < SEAL:
        raise InputError(
            f"a message must have at least {SEAL} bytes, not {len(content)}"
        )
    body = content[:-SEAL]
    if sealed(body, context) != content:
        raise wrong_place()
    return body


def check_version(version: int) -> None:
    """Refuse messages of another format."""
    if version != VERSION:
        raise InputError(f"the message's format must be {VERSION}, not {version}")


def wrong_place() -> InputError:
    """What is said of bytes whose checksum is wrong: nobody can tell which of the three it is."""
    return InputError(
        "the message is damaged, or was made by another codec or for another place"
    )
