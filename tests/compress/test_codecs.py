"""What every codec promises: the same numbers from a payload and from its bytes, honest lengths, one sentence for bad
input."""

import dataclasses
import hashlib
import subprocess
import sys

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from compress.vectors import gaussian, laplace
from fedlama import InputError, compress
from fedlama.compress import Cast, Chain, ErrorFeedback, LowRank, Quantize, Rotate, TopK

CODECS = [
    Cast("bfloat16"),
    Cast("float16"),
    Cast("float32"),
    Quantize(2),
    Quantize(5, block=64),
    Quantize(8, stochastic=False),
    Rotate(0.1),
    Rotate(0.64),
    Rotate(2, allocation="water"),
    Rotate(8),
    Rotate(1, scale="least_squares"),
    TopK(0.05),
    TopK(1),
    LowRank(2),
    Chain(TopK(0.1), Quantize(4)),
    Chain(LowRank(1), Rotate(2)),
    Chain(TopK(0.3), Cast("float16")),
    Chain(LowRank(2), Chain(TopK(0.5), Cast("bfloat16"))),
    ErrorFeedback(Rotate(0.32)),
    ErrorFeedback(Chain(TopK(0.1), Quantize(3)), lifetime="run"),
]
SHAPES = [
    (0,),
    (),
    (1,),
    (3,),
    (64,),
    (100,),
    (7, 11),
    (16, 3, 3, 3),
    (0, 5),
    (1000,),
    (48, 48),
]


def named(codec):
    return repr(codec)


@pytest.mark.parametrize("codec", CODECS, ids=named)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_payload_and_bytes_give_the_same_tensor(codec, shape):
    x = gaussian(max(1, torch.Size(shape).numel()), seed=len(shape))[
        : torch.Size(shape).numel()
    ].reshape(shape)
    payload = codec.encode(x, key=7)
    content = payload.to_bytes()
    decoded = codec.decode(payload, key=7)
    assert decoded.shape == x.shape
    assert decoded.dtype == torch.float32
    assert torch.equal(decoded, codec.decode(content, key=7))
    assert torch.equal(decoded, codec.decode(bytearray(content), key=7, shape=shape))
    assert payload.nbytes == len(content)
    assert abs(payload.estimated_nbytes - payload.nbytes) <= 8
    assert bool(decoded.isfinite().all())


@given(
    codec=st.sampled_from(CODECS),
    numbers=st.lists(
        st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=80
    ),
    key=st.integers(0, 2**128 - 1),
)
def test_any_finite_numbers_come_back_with_their_shape(codec, numbers, key):
    x = torch.tensor(numbers)
    payload = codec.encode(x, key=key)
    decoded = codec.decode(payload.to_bytes(), key=key)
    assert torch.equal(decoded, codec.decode(payload, key=key))
    assert decoded.shape == x.shape
    assert bool(decoded.isfinite().all())


@pytest.mark.parametrize("codec", CODECS, ids=named)
@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 3e34])
def test_zeros_and_extreme_numbers(codec, value):
    x = torch.full((40, 50), value)
    decoded = codec.decode(codec.encode(x, key=1).to_bytes(), key=1)
    assert bool(decoded.isfinite().all())
    if value == 0:
        assert torch.equal(decoded, x)


@pytest.mark.parametrize("codec", CODECS, ids=named)
def test_large_payloads_are_estimated_within_eight_bytes(codec):
    payload = codec.encode(laplace(9 * 16384).reshape(384, 384), key=3)
    assert abs(payload.estimated_nbytes - payload.nbytes) <= 8


@pytest.mark.parametrize("codec", CODECS, ids=named)
def test_codecs_are_values(codec):
    assert dataclasses.replace(codec) == codec
    assert hash(dataclasses.replace(codec)) == hash(codec)
    assert eval(repr(codec), vars(compress)) == codec
    with pytest.raises(dataclasses.FrozenInstanceError):
        codec.bits = 3


def test_the_input_is_left_alone_and_may_be_of_any_float():
    x = gaussian(2000)
    before = x.clone()
    for codec in CODECS:
        codec.encode(x, key=0)
        assert torch.equal(x, before)
    decoded = Cast("bfloat16").decode(Cast("bfloat16").encode(x.double(), key=0), key=0)
    assert torch.equal(decoded, x.bfloat16().float())


def test_keys_decide_the_draws():
    x = gaussian(4096)
    for codec in (Quantize(3), Rotate(1)):
        one = codec.decode(codec.encode(x, key=1), key=1)
        again = codec.decode(codec.encode(x, key=1), key=1)
        other = codec.decode(codec.encode(x, key=2), key=2)
        assert torch.equal(one, again)
        assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Cast("int8"),
            "dtype must be one of bfloat16, float16, float32, not 'int8'",
        ),
        (lambda: Quantize(1), "bits must be at least 2, not 1"),
        (lambda: Quantize(9), "bits must be at most 8, not 9"),
        (lambda: Quantize(2.5), "bits must be a whole number, not 2.5"),
        (lambda: Quantize(4, block=1), "block must be at least 8, not 1"),
        (lambda: Quantize(4, stochastic=1), "stochastic must be True or False, not 1"),
        (lambda: Rotate(0.05), "bits must be at least 0.1 and at most 8, not 0.05"),
        (lambda: Rotate(8.5), "bits must be at least 0.1 and at most 8, not 8.5"),
        (lambda: Rotate("1"), "bits must be at least 0.1 and at most 8, not '1'"),
        (lambda: Rotate(float("nan")), "bits must be"),
        (
            lambda: Rotate(1, allocation="fire"),
            "allocation must be one of uniform, water, not 'fire'",
        ),
        (
            lambda: Rotate(1, small_bits=0),
            "small_bits must be at least 0.1 and at most 8, not 0",
        ),
        (
            lambda: Rotate(1, scale="x"),
            "scale must be one of unbiased, least_squares, not 'x'",
        ),
        (lambda: TopK(0), "share must be above 0 and at most 1, not 0"),
        (lambda: TopK(1.1), "share must be above 0 and at most 1, not 1.1"),
        (lambda: LowRank(0), "rank must be at least 1, not 0"),
        (lambda: LowRank(5000), "rank must be at most 1,024, not 5000"),
        (lambda: Chain(TopK(0.1), "x"), "a chain is made of codecs, not of 'x'"),
        (
            lambda: Chain(Rotate(1), Quantize(4)),
            "a chain must begin with a codec that leaves fewer numbers",
        ),
        (
            lambda: Chain(Cast(), TopK(0.1)),
            "a chain must begin with a codec that leaves fewer numbers",
        ),
        (
            lambda: Chain(TopK(0.2), Chain(TopK(0.5), Cast())),
            "TopK cannot follow itself in a chain",
        ),
        (
            lambda: Chain(TopK(0.2), LowRank(2)),
            "LowRank must come first in a chain: it needs a matrix",
        ),
        (
            lambda: Chain(TopK(0.1), ErrorFeedback(Rotate(1))),
            "put the chain inside ErrorFeedback",
        ),
        (lambda: ErrorFeedback(3), "error feedback goes around a codec, not around 3"),
        (
            lambda: ErrorFeedback(ErrorFeedback(Cast())),
            "error feedback goes around a codec that keeps nothing itself",
        ),
        (
            lambda: ErrorFeedback(Cast(), lifetime="day"),
            "lifetime must be one of window, run, not 'day'",
        ),
        (
            lambda: ErrorFeedback(Cast(), profile=(0.5, 0.5)),
            "a profile needs a codec with a rate",
        ),
        (
            lambda: ErrorFeedback(Rotate(1), profile=(0.5, 0.6)),
            "must add up to 1, not to 1.1",
        ),
        (
            lambda: ErrorFeedback(Rotate(1), profile="abc"),
            "profile must be a list of shares, not 'abc'",
        ),
        (
            lambda: ErrorFeedback(Rotate(1), "run", (0.5, 0.5)),
            "lifetime must be window",
        ),
        (
            lambda: ErrorFeedback(TopK(0.1), gain=True),
            "a gain needs a codec whose error is known",
        ),
        (lambda: ErrorFeedback(Rotate(1), "run", gain=True), "lifetime must be window"),
        (
            lambda: Cast().encode(torch.arange(3), key=0),
            "only tensors of floats can be coded, not torch.int64",
        ),
        (
            lambda: Cast().encode([1.0], key=0),
            "only tensors of floats can be coded, not list",
        ),
        (
            lambda: Cast().encode(torch.ones(3), key=-1),
            "key must be a whole number that is not negative, not -1",
        ),
        (lambda: Cast().encode(torch.ones(3), key=0.5), "key must be a whole number"),
        (
            lambda: Cast().decode("text", key=0),
            "a payload must be bytes or a Payload, not str",
        ),
        (
            lambda: ErrorFeedback(Cast()).encode(torch.ones(3), key=0, own={}),
            "needs the slot 'residual'",
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(InputError) as error:
        make()
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("codec", CODECS, ids=named)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(codec, bad):
    x = torch.ones(50)
    x[20] = bad
    with pytest.raises(InputError, match="not finite"):
        codec.encode(x, key=0)


PROGRAM = """
import hashlib, sys
from fedlama.compress import *
decoded = {codec!r}.decode(sys.stdin.buffer.read(), key=11)
print(tuple(decoded.shape), hashlib.sha256(decoded.numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "codec", [CODECS[4], CODECS[7], CODECS[14], CODECS[15]], ids=named
)
def test_another_process_decodes_to_the_same_numbers(codec):
    payload = codec.encode(gaussian(3000).reshape(60, 50), key=11)
    program = [sys.executable, "-c", PROGRAM.format(codec=codec)]
    done = subprocess.run(
        program, input=payload.to_bytes(), capture_output=True, check=True
    )
    decoded = codec.decode(payload, key=11)
    digest = hashlib.sha256(decoded.numpy().tobytes()).hexdigest()
    assert done.stdout.decode().split() == [*str(tuple(decoded.shape)).split(), digest]


def test_zeros_at_the_end_are_not_lost_in_the_coder():
    """All that is kept stands in front: the rest of the positions is one symbol, the table's first."""
    x = torch.zeros(100_000)
    x[:5000] = 1.0
    payload = TopK(0.05).encode(x, key=0)
    assert abs(payload.estimated_nbytes - payload.nbytes) <= 8
    assert torch.equal(TopK(0.05).decode(payload.to_bytes(), key=0), x)
