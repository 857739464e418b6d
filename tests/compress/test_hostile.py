"""Bytes that are damaged, misplaced or made to mislead: refused in one sentence, with bounded memory."""

import struct
import tracemalloc

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from compress.test_codecs import CODECS, named
from compress.test_message import ALL, ANCHOR, LAYOUT, difference
from compress.test_message import CODECS as MESSAGE_CODECS
from compress.vectors import gaussian
from fedlama import InputError
from fedlama.compress import (
    Cast,
    Channel,
    ErrorFeedback,
    LowRank,
    MessagePlace,
    Quantize,
    Rotate,
    TopK,
)
from fedlama.compress.framing import sealed, whole_number
from fedlama.compress.payload import context_of
from fuzz.guard import LargestTensor

X = gaussian(1500).view(30, 50)
PLACE = MessagePlace(3, 4)


def resealed(codec, body: bytes, key: int = 7) -> bytes:
    """With a right checksum: what a sender can make who knows the format."""
    return sealed(body, context_of(codec, key))


@pytest.mark.parametrize("codec", CODECS, ids=named)
def test_every_flipped_bit_and_every_cut_is_noticed(codec):
    content = codec.encode(X[:4], key=7).to_bytes()
    for at in range(len(content)):
        for bit in (1, 128):
            changed = bytearray(content)
            changed[at] ^= bit
            with pytest.raises(InputError):
                codec.decode(bytes(changed), key=7)
        with pytest.raises(InputError):
            codec.decode(content[:at], key=7)
    with pytest.raises(InputError):
        codec.decode(content + b"\x00", key=7)


@pytest.mark.parametrize("codec", CODECS, ids=named)
def test_another_place_codec_or_shape_is_noticed(codec):
    payload = codec.encode(X, key=7)
    for given_payload in (payload, payload.to_bytes()):
        with pytest.raises(
            InputError,
            match="damaged, or was made by another codec or for another place",
        ):
            codec.decode(given_payload, key=8)
        with pytest.raises(InputError, match="another codec"):
            Quantize(7).decode(given_payload, key=7)
        with pytest.raises(
            InputError, match=r"must have the shape \(50, 30\), not \(30, 50\)"
        ):
            codec.decode(given_payload, key=7, shape=(50, 30))


@given(codec=st.sampled_from(CODECS), body=st.binary(max_size=200))
def test_any_bytes_with_a_right_checksum(codec, body):
    try:
        decoded = codec.decode(resealed(codec, body), key=7)
    except InputError:
        return
    assert bool(decoded.isfinite().all())


@given(codec=st.sampled_from(CODECS), data=st.data())
def test_changed_bytes_with_a_right_checksum(codec, data):
    body = bytearray(codec.encode(X[:6], key=7).to_bytes()[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    try:
        decoded = codec.decode(resealed(codec, bytes(body)), key=7, shape=(6, 50))
    except InputError:
        return
    assert decoded.shape == (6, 50)
    assert bool(decoded.isfinite().all())


def head(*shape: int) -> bytes:
    return bytes((1, len(shape))) + b"".join(whole_number(size) for size in shape)


def scaled(codec, scale: float) -> bytes:
    """A true payload of `Rotate`, but for the scale that multiplies its codes."""
    body = bytearray(codec.encode(X, key=7).to_bytes()[:-4])
    struct.pack_into("<f", body, len(head(*X.shape)) + 2, scale)
    return bytes(body)


@pytest.mark.parametrize(
    ("codec", "body", "sentence"),
    [
        (
            Rotate(1),
            head(64) + struct.pack("<Hf", 40_000, 1.0),
            "the rate must be 0.1 to 8.0 bits per number",
        ),
        (
            Rotate(1),
            head(64) + struct.pack("<Hf", 5000, -1.0),
            "the scale must be finite and above 0, not -1.0",
        ),
        (
            Rotate(1),
            head(64) + struct.pack("<Hf", 5000, float("inf")),
            "the scale must be finite and above 0",
        ),
        (
            Rotate(1),
            head(1 << 20) + struct.pack("<Hf", 5000, 1.0) + bytes(8),
            "too short for the numbers",
        ),
        (
            Rotate(1),
            head(1 << 27) + struct.pack("<Hf", 5000, 1.0) + bytes(8),
            "refused unless its shape is expected",
        ),
        (Rotate(1), head(1 << 40, 1 << 40), "refused unless its shape is expected"),
        (
            Rotate(1),
            head(1 << 26) + struct.pack("<H", 0xFFFF),
            "a tensor of 67108864 numbers is refused unless",
        ),
        (
            Rotate(1),
            head(1 << 22) + struct.pack("<H", 0xFFFF),
            "a tensor of 4194304 numbers is refused unless",
        ),
        (
            TopK(1e-9),
            head(1 << 26) + struct.pack("<f", 1.0) + bytes(8),
            "refused unless its shape is expected",
        ),
        (Rotate(1), bytes((1, 17)), "at most 16 dimensions, not 17"),
        (Rotate(1), bytes((2, 1, 4)), "the message's format must be 1, not 2"),
        (Rotate(1), bytes((1, 1)) + b"\xff" * 12, "longer than 63 bits"),
        (Rotate(1), head(64), "2 bytes should follow, but only 0 are left"),
        (
            Rotate(1),
            head(64) + struct.pack("<H", 0xFFFF) + b"abcd",
            "4 bytes where none should follow",
        ),
        (
            Rotate(1),
            head(64) + struct.pack("<Hf", 5000, 1.0) + b"abcde",
            "whole words of 4 bytes, not 5",
        ),
        (
            Cast(),
            head(1 << 20) + b"ab",
            "2097152 bytes should follow, but only 2 are left",
        ),
        (Cast(), head(1) + b"\x80\x7f", "not finite"),
        (Quantize(4), head(1 << 20) + b"ab", "bytes should follow"),
        (
            Quantize(4),
            head(4) + struct.pack("<f", float("nan")),
            "a block's scale must be finite and not negative",
        ),
        (TopK(0.5), head(1 << 20) + b"abcd", "bytes should follow"),
        (LowRank(1), head(1 << 10, 1 << 10) + b"abcd", "bytes should follow"),
        (LowRank(1), head(0, 7) + b"abcd", "4 bytes where none should follow"),
        (
            LowRank(1),
            head(4, 4) + struct.pack("<8f", *[3e38] * 8),
            "numbers that are not finite",
        ),
        (Rotate(1), scaled(Rotate(1), 3.3e38), "numbers that are not finite"),
        (
            Rotate(1),
            head(0, 1 << 62, 1 << 62),
            "a tensor of 0 numbers is refused unless its shape is expected",
        ),
    ],
)
def test_lies_under_a_right_checksum(codec, body, sentence):
    """Refused before memory is asked for, from Python or from torch."""
    tracemalloc.start()
    try:
        with LargestTensor() as largest, pytest.raises(InputError, match=sentence):
            codec.decode(resealed(codec, body), key=7)
        assert largest.bytes < 1 << 20
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_nothing_but_zeros_is_decoded_where_the_shape_is_expected():
    zeros = torch.zeros(1 << 21)
    content = Rotate(1).encode(zeros, key=7).to_bytes()
    assert torch.equal(Rotate(1).decode(content, key=7, shape=(1 << 21,)), zeros)
    with pytest.raises(InputError, match="unless its shape is expected"):
        Rotate(1).decode(content, key=7)


def test_positions_that_are_not_as_many_as_agreed():
    """A stream of five kept numbers where ten should be."""
    five, ten = TopK(0.05), TopK(0.1)
    x = gaussian(100)
    run = five.encode(x, key=0).coded.runs[0]
    payload = ten.encode(x, key=7)
    payload.coded.runs[0].symbols = run.symbols
    with pytest.raises(InputError, match="10 numbers should have been kept, not 5"):
        ten.decode(payload.to_bytes(), key=7)


@pytest.mark.parametrize("codec", MESSAGE_CODECS, ids=repr)
def test_messages_of_another_place_round_or_layer(codec):
    channel = Channel(codec, LAYOUT, seed=3)
    place = MessagePlace(3, 4, 1, 4)
    content = channel.pack(difference(), ALL, place, anchor=ANCHOR)
    channel.unpack(content, ALL, place, anchor=ANCHOR)
    others = [
        (channel, content, ALL, MessagePlace(4, 4, 1, 4)),
        (channel, content, ALL, MessagePlace(3, 5, 1, 4)),
        (channel, content, [0, 1], place),
        (Channel(codec, LAYOUT, seed=4), content, ALL, place),
        (Channel(codec, LAYOUT, seed=3, direction="downlink"), content, ALL, place),
        (channel, content[:-1], ALL, place),
        (channel, content[:40], ALL, place),
        (channel, b"", ALL, place),
    ]
    for receiver, received, due, where in others:
        with pytest.raises(InputError):
            receiver.unpack(received, due, where, anchor=ANCHOR)


@given(codec=st.sampled_from(MESSAGE_CODECS[:9]), data=st.data())
def test_changed_messages_with_a_right_checksum(codec, data):
    channel = Channel(codec, LAYOUT, seed=3)
    body = bytearray(channel.pack(difference(), [0, 1, 2], PLACE, anchor=ANCHOR)[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    content = sealed(bytes(body), channel._context([0, 1, 2], PLACE))
    try:
        received = channel.unpack(content, [0, 1, 2], PLACE, anchor=ANCHOR)
    except InputError:
        return
    assert bool(received.row.isfinite().all())
    for number, part in enumerate(LAYOUT.statistics):
        if LAYOUT.roles[number] == "variance":
            assert bool((ANCHOR + received.row)[part].min() > 0)


def test_numbers_that_only_the_gain_makes_infinite():
    """Window feedback at 0.32 bits multiplies by 3.8: a scale of 10³⁸ decodes to finite numbers before that."""
    channel = Channel(ErrorFeedback(Rotate(0.32)), LAYOUT, seed=3)
    (layer,) = (number for number in ALL if LAYOUT.layers[number].size == 16 * 32 * 9)
    body = bytearray(channel.pack(difference(), [layer], PLACE, anchor=ANCHOR)[:-4])
    # Format, one norm, the step's index, and then the scale
    struct.pack_into("<f", body, 1 + 4 + 2, 1e38)
    content = sealed(bytes(body), channel._context([layer], PLACE))
    out = torch.ones(LAYOUT.width)
    with pytest.raises(InputError, match="numbers that are not finite"):
        channel.unpack(content, [layer], PLACE, anchor=ANCHOR, out=out)
    assert bool((out == 1).all())


def test_a_refused_message_leaves_the_row_alone():
    channel = Channel(Rotate(1), LAYOUT, seed=3)
    out = torch.ones(LAYOUT.width)
    with pytest.raises(InputError):
        channel.unpack(b"nonsense", ALL, PLACE, anchor=ANCHOR, out=out)
    assert bool((out == 1).all())
