"""A coded tensor on its way: version, shape, side bytes, stream, checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedlama.compress.coded import Coded, Shape
from fedlama.compress.framing import SEAL, VERSION, sealed, whole_number
from fedlama.compress.streams import estimated_length, to_stream

if TYPE_CHECKING:
    from fedlama.compress.codec import Codec


class Payload:
    """A coded tensor on its way: `to_bytes` for the wire, `nbytes` its length.

    `estimated_nbytes` is what the length will be within 8 bytes, and 3 more per million numbers, without running the
    entropy coder. Made by `encode`.

    Arguments:
        codec: Who coded it.
        coded: What came of it.
        shape: Of the tensor.
        key: The tensor's place, which is never sent.
    """

    def __init__(self, codec: Codec, coded: Coded, shape: Shape, key: int) -> None:
        self.codec = codec
        self.coded = coded
        self.shape = shape
        self.key = key
        self._content: bytes | None = None

    def __repr__(self) -> str:
        length = f"about {self.estimated_nbytes} bytes"
        return f"Payload({self.codec!r}, shape={self.shape}, {length})"

    def to_bytes(self) -> bytes:
        """The message: version, shape, side bytes, stream, checksum."""
        # The entropy coder runs once, although `nbytes` asks for the bytes, too
        if self._content is None:
            head = self._head()
            side = self.coded.all_side()
            runs = self.coded.all_runs()
            stream = to_stream(runs)
            context = context_of(self.codec, self.key)
            self._content = sealed(head + side + stream, context)
        return self._content

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return len(self.to_bytes())

    @property
    def estimated_nbytes(self) -> int:
        """Bytes that a simulator charges."""
        head = self._head()
        side = self.coded.all_side()
        # The stream is as long as there is information in its symbols
        information = self.coded.bits()
        stream = estimated_length(information)
        return len(head) + len(side) + stream + SEAL

    def _head(self) -> bytes:
        version_and_count = bytes((VERSION, len(self.shape)))
        sizes = b"".join(whole_number(size) for size in self.shape)
        return version_and_count + sizes


def context_of(codec: Codec, key: int) -> str:
    """What both ends know of a payload and nobody sends: the checksum is over it, too."""
    return f"{codec!r}/{key}"
