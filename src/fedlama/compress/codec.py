"""What a codec is: a tensor to bytes and back, with nothing sent that both ends can compute.

`encode` makes a payload, `decode` gives the tensor back, bit for bit the same on every process. The `key` stands for
the place of the tensor (seed, round, client, layer). Random draws follow from it, it is never sent, and bytes that
were made under another key or by another codec are refused.

A codec of your own derives from `Codec` and writes `code`, `expect` and `rebuild`.
"""

from __future__ import annotations

import math
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedlama.base import InputError, shown
from fedlama.compress.limits import FREE_NUMBERS, MAX_DIMENSIONS, MAX_NUMBERS, MAX_NUMBERS_PER_BYTE
from fedlama.compress.streams import Run, estimated_length, read_stream, to_stream
from fedlama.core import Layout
from fedlama.rows import Slot

VERSION = 1
SEAL = 4  # bytes of the checksum at the end
SLAB = 1 << 16  # numbers of a large tensor that are computed with at a time, so that they stay in the cache
Shape = tuple[int, ...]


@dataclass
class Coded:
    """A tensor as a codec leaves it.

    Arguments:
        side: Bytes that stand for themselves.
        runs: Symbols under tables, which the entropy coder makes bytes of.
        inner: What the next codec of a chain made.
    """

    side: bytes = b""
    runs: list[Run] = field(default_factory=list)
    inner: Coded | None = None

    def all_side(self) -> bytes:
        """The bytes of this and of the codecs after it."""
        if self.inner is None:
            return self.side
        return self.side + self.inner.all_side()

    def all_runs(self) -> list[Run]:
        """The runs of this and of the codecs after it."""
        if self.inner is None:
            return self.runs
        return self.runs + self.inner.all_runs()

    def bits(self) -> float:
        """Information in all runs, which the stream will need."""
        return sum(run.bits for run in self.all_runs())


class Reader:
    """Bytes taken from the front; too few of them are refused before anything is made of them.

    Arguments:
        content: All of the bytes.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        left = len(self._content) - self._at
        if count > left:
            raise InputError(f"{count} bytes should follow, but only {left} are left")
        end = self._at + count
        part = self._content[self._at : end]
        self._at = end
        return part

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._content) - self._at)

    def whole_number(self) -> int:
        """A whole number in groups of seven bits, the lowest first."""
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
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


class Codec(ABC):
    """A tensor to bytes and back."""

    # What a codec has to say

    @abstractmethod
    def code(self, x: Tensor, *, key: int, bits: float | None = None, warm: Tensor | None = None) -> Coded:
        """Code a float32 tensor with at least one number, all of them finite.

        Arguments:
            x: The tensor.
            key: Its place, from which random draws follow.
            bits: Another rate than the codec's own, 0 for "send nothing"; codecs without a rate ignore it.
            warm: A tensor of the same shape that both this one and its predecessors may resemble.
        """

    @abstractmethod
    def expect(self, side: Reader, shape: Shape) -> Coded:
        """Which runs of symbols belong to a tensor, as its side bytes say.

        Arguments:
            side: Where the side bytes are read from.
            shape: The tensor's.
        """

    @abstractmethod
    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """The tensor that the receiver gets.

        Arguments:
            coded: What `code` made, or `expect` with its symbols read.
            shape: The tensor's.
            key: Its place.
        """

    # What it may say

    def code_all(
        self,
        tensors: Sequence[Tensor],
        *,
        keys: Sequence[int],
        bits: Sequence[float | None],
        warm: Sequence[Tensor | None],
    ) -> list[Coded]:
        """`code` for each of several tensors; a codec that is faster with several at once may say how.

        Arguments:
            tensors: What is coded.
            keys: The place of each.
            bits: The rate of each; None for the codec's own.
            warm: What each may resemble, or None.
        """
        coded: list[Coded] = []
        for x, key, rate, start in zip(tensors, keys, bits, warm, strict=True):
            one = self.code(x, key=key, bits=rate, warm=start)
            coded.append(one)
        return coded

    def rebuild_all(self, coded: Sequence[Coded], shapes: Sequence[Shape], *, keys: Sequence[int]) -> list[Tensor]:
        """`rebuild` for each of several tensors, to the same bits.

        Arguments:
            coded: What `code_all` made.
            shapes: The shape of each.
            keys: The place of each.
        """
        rebuilt: list[Tensor] = []
        for one, shape, key in zip(coded, shapes, keys, strict=True):
            x = self.rebuild(one, shape, key=key)
            rebuilt.append(x)
        return rebuilt

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The rows that it keeps per client, by name and lifetime; most codecs keep none."""
        return ()

    @property
    def rate(self) -> float | None:
        """Bits per number, where that can be chosen."""
        return None

    @property
    def sharing(self) -> str:
        """How a message shares its bits among layers, where there is a rate."""
        return "uniform"

    @property
    def wants_warm(self) -> bool:
        """Whether the server's last change of a layer helps it."""
        return False

    def kept(self, bits: float | None = None) -> float | None:
        """⟨x̂, x⟩/‖x‖² on average: 1 if unbiased, 1 − D if shrunk, None where it depends on the numbers.

        Arguments:
            bits: At another rate than the codec's own.
        """
        return 1.0

    def kept_of(self, coded: Coded) -> float | None:
        """The same for a tensor that was coded, as `coded` holds it."""
        return self.kept()

    def fitted(self, layout: Layout) -> Codec:
        """The code for the model with this `layout`, where options follow from the model's layers."""
        return self

    def under_feedback(self) -> Codec:
        """The variant with the least error, for a sender that keeps what was not sent."""
        return self

    def for_small_tensors(self) -> Codec:
        """What biases, norms' parameters and statistics are coded with."""
        return self

    def for_whole_run(self) -> Codec:
        """The variant for a sender that stays as long as the run does: nothing that it keeps is ever forgotten."""
        return self

    def for_round(self, round_in_window: int, rounds_per_window: int) -> tuple[float | None, float]:
        """The rate in a round of a window (None: as always), and the factor by which the server multiplies.

        Arguments:
            round_in_window: Which round, counted from 0.
            rounds_per_window: Of how many.
        """
        return None, 1.0

    def target(self, x: Tensor, own: Mapping[str, Tensor] | None) -> Tensor:
        """What is to be coded for `x`, given this client's slots in `own`."""
        return x

    def remember(self, target: Tensor, decoded: Tensor, own: Mapping[str, Tensor] | None) -> None:
        """Update this client's slots in place.

        Arguments:
            target: What was coded.
            decoded: What the receiver gets.
            own: The slots by name.
        """
        return

    # What users call

    def encode(
        self, x: Tensor, *, key: int, own: Mapping[str, Tensor] | None = None, warm: Tensor | None = None
    ) -> Payload:
        """Code a tensor of floats.

        Arguments:
            x: The tensor.
            key: Stands for the tensor's place and decides every random draw.
            own: This client's slots for these numbers by name; they are updated in place.
            warm: May help codecs that look for directions (`LowRank`): a tensor that the sender knows and that x
                resembles, such as the server's last change.
        """
        check_key(key)
        values = as_numbers(x)
        shape = tuple(x.shape)
        target = self.target(values, own)
        coded = Coded()
        if target.numel():
            coded = self.code(target, key=key, warm=warm)
            if self.slots and own is not None:
                self.remember(target, self.rebuild(coded, shape, key=key), own)
        return Payload(self, coded, shape, key)

    def decode(self, payload: Payload | bytes, *, key: int, shape: Sequence[int] | None = None) -> Tensor:
        """The tensor of a payload or of its bytes, float32 and shaped like the one that was coded.

        Arguments:
            payload: What `encode` made, or its bytes.
            key: The place that it was coded for.
            shape: What the caller expects: anything else is refused before memory is asked for. Without it there is a
                limit of 2²⁶ numbers, and for bytes one of 2²⁰ numbers and 4,096 more per byte: a few bytes may say
                that millions of numbers are all zero.
        """
        check_key(key)
        if isinstance(payload, Payload):
            if payload.codec != self or payload.key != key:
                raise _wrong_place()
            coded = payload.coded
            found = payload.shape
            _check_shape(found, shape, MAX_NUMBERS)
        elif isinstance(payload, bytes | bytearray | memoryview):
            coded, found = self._read(bytes(payload), key, shape)
        else:
            raise InputError(f"a payload must be bytes or a Payload, not {type(payload).__name__}")
        if not math.prod(found):
            return torch.zeros(found)
        return self.rebuild(coded, found, key=key)

    def _read(self, content: bytes, key: int, expected: Sequence[int] | None) -> tuple[Coded, Shape]:
        reader = Reader(unsealed(content, _context(self, key)))
        check_version(reader.take(1)[0])
        dimensions = reader.take(1)[0]
        if dimensions > MAX_DIMENSIONS:
            raise InputError(f"a tensor must have at most {MAX_DIMENSIONS} dimensions, not {dimensions}")
        shape = tuple(reader.whole_number() for _ in range(dimensions))
        plausible = FREE_NUMBERS + MAX_NUMBERS_PER_BYTE * len(content)
        _check_shape(shape, expected, min(plausible, MAX_NUMBERS))
        coded = Coded()
        if math.prod(shape):
            coded = self.expect(reader, shape)
        read_stream(reader.rest(), coded.all_runs())
        return coded, shape


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
            self._content = sealed(content, _context(self.codec, self.key))
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


def sealed(content: bytes, context: str) -> bytes:
    """The content and a checksum over it and over what both ends know."""
    checksum = zlib.crc32(content, zlib.crc32(context.encode()))
    return content + struct.pack("<I", checksum)


def unsealed(content: bytes, context: str) -> bytes:
    """The content without its checksum, if that is right."""
    if len(content) < SEAL:
        raise InputError(f"a message must have at least {SEAL} bytes, not {len(content)}")
    body = content[:-SEAL]
    if sealed(body, context) != content:
        raise _wrong_place()
    return body


def check_version(version: int) -> None:
    """Refuse messages of another format."""
    if version != VERSION:
        raise InputError(f"the message's format must be {VERSION}, not {version}")


def check_key(key: int) -> None:
    """A key is a whole number that a generator can be seeded with."""
    if not isinstance(key, int | np.integer) or isinstance(key, bool) or key < 0:
        raise InputError(f"key must be a whole number that is not negative, not {shown(key)}")


def bit_source(key: int) -> np.random.Philox:
    """The random bits of one place; Philox takes any key, and neighbouring ones are unrelated."""
    return np.random.Philox(key=int(key) % (1 << 128))


def rekey(source: np.random.Philox, key: int) -> None:
    """Let a source go on as `bit_source(key)` would, which is faster than making another."""
    state = source.state
    wanted = int(key) % (1 << 128)
    state["state"]["key"][:] = (wanted % (1 << 64), wanted >> 64)
    state["state"]["counter"][:] = 0
    state["buffer_pos"] = 4  # nothing is left of what was drawn before
    state["has_uint32"] = 0
    source.state = state


def generator(key: int) -> np.random.Generator:
    """The random draws of one place."""
    return np.random.Generator(bit_source(key))


def as_numbers(x: Tensor) -> Tensor:
    """x as finite float32 numbers on the CPU."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = getattr(x, "dtype", type(x).__name__)
        raise InputError(f"only tensors of floats can be coded, not {kind}")
    values = x.detach().to("cpu", torch.float32)
    check_finite(values)
    return values


def check_finite(values: Tensor) -> None:
    """Refuse infinities and NaN: no code for a difference has room for them."""
    # A sum is not finite if one of its terms is not; only if it is not, look closer (large numbers may overflow).
    if not bool(values.sum().isfinite()) and not bool(values.isfinite().all()):
        raise InputError("numbers that are not finite cannot be coded")


def squared_norm(values: Tensor) -> float:
    """‖·‖² of a flat tensor, added up in float64."""
    total = 0.0
    for part in values.split(SLAB):
        exact = part.double()
        total += float(torch.dot(exact, exact))
    return total


def _check_shape(shape: Shape, expected: Sequence[int] | None, limit: int) -> None:
    if expected is not None:
        if tuple(expected) != shape:
            raise InputError(f"the tensor must have the shape {tuple(expected)}, not {shape}")
    elif math.prod(shape) > limit:
        raise InputError(f"a tensor of {math.prod(shape)} numbers is refused unless its shape is expected")


def _context(codec: Codec, key: int) -> str:
    return f"{codec!r}/{key}"


def _wrong_place() -> InputError:
    return InputError("the message is damaged, or was made by another codec or for another place")
