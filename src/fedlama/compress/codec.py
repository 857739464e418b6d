"""What a codec is: a tensor to bytes and back, with nothing sent that both ends can compute.

`encode` makes a payload, `decode` gives the tensor back, bit for bit the same on every process. The `key` stands for
the place of the tensor (seed, round, client, layer). Random draws follow from it, it is never sent, and bytes that
were made under another key or by another codec are refused.

A codec of your own derives from `Codec` and writes `code`, `expect` and `rebuild`. `hooks.py` has what it may say
beside: what its sender keeps, its rate and error, and the rounds of a window.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedlama.base import InputError, by_its_fields
from fedlama.compress.coded import Coded, Shape
from fedlama.compress.draws import check_key
from fedlama.compress.framing import Reader, check_version, unsealed, wrong_place
from fedlama.compress.hooks import RateHooks, SlotHooks, WindowHooks
from fedlama.compress.limits import (
    FREE_NUMBERS,
    MAX_DIMENSIONS,
    MAX_NUMBERS,
    MAX_NUMBERS_PER_BYTE,
)
from fedlama.compress.numbers import as_numbers, check_finite
from fedlama.compress.payload import Payload, context_of
from fedlama.compress.streams import read_stream
from fedlama.core import Layout


class Codec(SlotHooks, RateHooks, WindowHooks, ABC):
    """A tensor to bytes and back: `code`, `expect` and `rebuild` are the code, `encode` and `decode` what users call.

    All else has a default: what is faster with several tensors at once, variants for other uses, and the hooks of
    `hooks.py`.
    """

    # What a codec is

    def __repr__(self) -> str:
        # Bytes are sealed with it, so another process must print the same. Dataclasses print themselves.
        return by_its_fields(self)

    @abstractmethod
    def code(
        self,
        x: Tensor,
        *,
        key: int,
        bits: float | None = None,
        warm: Tensor | None = None,
    ) -> Coded:
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

    def encode(
        self,
        x: Tensor,
        *,
        key: int,
        own: Mapping[str, Tensor] | None = None,
        warm: Tensor | None = None,
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
            # Only a codec that keeps something has to know what the receiver gets
            if self.slots and own is not None:
                decoded = self.rebuild(coded, shape, key=key)
                self.remember(target, decoded, own)
        return Payload(self, coded, shape, key)

    def decode(
        self, payload: Payload | bytes, *, key: int, shape: Sequence[int] | None = None
    ) -> Tensor:
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
            # As the checksum of bytes would show
            if payload.codec != self or payload.key != key:
                raise wrong_place()
            coded = payload.coded
            found = payload.shape
            _check_shape(found, shape, MAX_NUMBERS)
        elif isinstance(payload, bytes | bytearray | memoryview):
            coded, found = _read(self, bytes(payload), key, shape)
        else:
            raise InputError(
                f"a payload must be bytes or a Payload, not {type(payload).__name__}"
            )
        if not math.prod(found):
            return torch.zeros(found)
        x = self.rebuild(coded, found, key=key)
        # Forged side bytes that are finite may still multiply to infinity
        check_finite(x)
        return x

    # What it may do faster or better

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
        inputs = zip(tensors, keys, bits, warm, strict=True)
        for x, key, rate, start in inputs:
            one = self.code(x, key=key, bits=rate, warm=start)
            coded.append(one)
        return coded

    def rebuild_all(
        self, coded: Sequence[Coded], shapes: Sequence[Shape], *, keys: Sequence[int]
    ) -> list[Tensor]:
        """`rebuild` for each of several tensors, to the same bits.

        Arguments:
            coded: What `code_all` made.
            shapes: The shape of each.
            keys: The place of each.
        """
        rebuilt: list[Tensor] = []
        inputs = zip(coded, shapes, keys, strict=True)
        for one, shape, key in inputs:
            x = self.rebuild(one, shape, key=key)
            rebuilt.append(x)
        return rebuilt

    @property
    def wants_warm(self) -> bool:
        """Whether the server's last change of a layer helps it."""
        return False

    # Its variants

    def fitted(self, layout: Layout) -> Codec:
        """The code for the model with this `layout`, where options follow from the model's layers.

        Arguments:
            layout: The model's layers.
        """
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


def _read(
    codec: Codec, content: bytes, key: int, expected: Sequence[int] | None
) -> tuple[Coded, Shape]:
    """A coded tensor and its shape from the bytes of a payload.

    Arguments:
        codec: Who coded it.
        content: The bytes.
        key: The place that they were coded for.
        expected: The shape that the caller expects, if any.
    """
    body = unsealed(content, context_of(codec, key))
    reader = Reader(body)
    version = reader.take(1)[0]
    check_version(version)
    dimensions = reader.take(1)[0]
    if dimensions > MAX_DIMENSIONS:
        raise InputError(
            f"a tensor must have at most {MAX_DIMENSIONS} dimensions, not {dimensions}"
        )
    shape = tuple(reader.whole_number() for _ in range(dimensions))
    plausible = FREE_NUMBERS + MAX_NUMBERS_PER_BYTE * len(content)
    limit = min(plausible, MAX_NUMBERS)
    _check_shape(shape, expected, limit)
    coded = Coded()
    # `encode` does not code an empty tensor: nothing but its shape was sent
    if math.prod(shape):
        coded = codec.expect(reader, shape)
    runs = coded.all_runs()
    read_stream(reader.rest(), runs)
    return coded, shape


def _check_shape(shape: Shape, expected: Sequence[int] | None, limit: int) -> None:
    if expected is not None:
        if tuple(expected) != shape:
            raise InputError(
                f"the tensor must have the shape {tuple(expected)}, not {shape}"
            )
        return
    # Without its zeros: torch multiplies the other sizes even of an empty tensor
    extent = math.prod(max(size, 1) for size in shape)
    if extent > limit:
        raise InputError(
            f"a tensor of {math.prod(shape)} numbers is refused unless its shape is expected, "
            f"which is {shape}"
        )
