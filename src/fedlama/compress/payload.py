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

    `estimated_nbytes` is what the length will be within 8 bytes, without running the entropy coder. Made by `encode`.

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
        return f"Payload({self.codec!r}, shape={self.shape}, about {self.estimated_nbytes} bytes)"

    def to_bytes(self) -> bytes:
        """The message: version, shape, side bytes, stream, checksum."""
        if self._content is None:
            side = self.coded.all_side()
            stream = to_stream(self.coded.all_runs())
            content = self._head() + side + stream
            self._content = sealed(content, context_of(self.codec, self.key))
        return self._content

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return len(self.to_bytes())

    @property
    def estimated_nbytes(self) -> int:
        """Bytes that a simulator charges."""
        known = len(self._head()) + len(self.coded.all_side()) + SEAL
        return known + estimated_length(self.coded.bits())

    def _head(self) -> bytes:
        dimensions = b"".join(whole_number(size) for size in self.shape)
        return bytes((VERSION, len(self.shape))) + dimensions


def context_of(codec: Codec, key: int) -> str:
    """What both ends know of a payload and nobody sends: the checksum is over it, too."""
    return f"{codec!r}/{key}"
