"""Codecs that are equal read each other's bytes, however their numbers were written."""

import numpy as np
import pytest
import torch

from doors.examples import Halves
from doors.harness import run, same_bits
from fedlama.base import InputError
from fedlama.compress import (
    Channel,
    Codec,
    ErrorFeedback,
    LowRank,
    MessagePlace,
    Quantize,
)
from fedlama.core import Layout
from fedlama.core import TensorEntry as Entry


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Quantize(np.int64(4)), Quantize(4)),
        (Quantize(4, block=np.int64(64)), Quantize(4, block=64)),
        (LowRank(np.int64(2)), LowRank(2)),
    ],
)
def test_numbers_of_numpy_make_the_same_codec(one, other):
    assert one == other
    x = torch.randn(16, 24, generator=torch.Generator().manual_seed(0))
    content = one.encode(x, key=7).to_bytes()
    assert torch.equal(other.decode(content, key=7), one.decode(content, key=7))


class Inside:
    """What a codec may hold; it does not print itself either."""

    def __init__(self, number):
        self.number = number


class NoDataclass(Codec):
    """A codec as somebody writes one who knows no dataclasses."""

    code = Halves.code
    expect = Halves.expect
    rebuild = Halves.rebuild

    def __init__(self, number):
        self.inside = Inside(number)


def itself(codec):
    return codec


@pytest.mark.parametrize("made", [itself, ErrorFeedback])
def test_a_codec_that_is_no_dataclass_reads_what_another_one_of_it_wrote(made):
    one, other, different = [made(NoDataclass(number)) for number in (1, 1, 2)]
    assert "NoDataclass(inside=Inside(number=1))" in repr(one)

    # Below 1,024 numbers a tensor goes into one small group, whatever the codec.
    layout = Layout.pack([Entry("a", 2048, adaptive=True)])
    row = torch.randn(2048, generator=torch.Generator().manual_seed(0))
    place = MessagePlace(1, client=0)
    sender = Channel(one, layout, seed=3)
    own = {slot.name: torch.zeros(2048) for slot in sender.slots}
    content = sender.pack(row, [0], place, own=own)
    read = Channel(other, layout, seed=3).unpack(content, [0], place)
    assert read.row.count_nonzero() == 2048
    with pytest.raises(InputError):
        Channel(different, layout, seed=3).unpack(content, [0], place)


def test_its_payloads_are_read_as_well():
    x = torch.randn(16, 24, generator=torch.Generator().manual_seed(0))
    content = NoDataclass(1).encode(x, key=7).to_bytes()
    assert NoDataclass(1).decode(content, key=7).shape == x.shape
    with pytest.raises(InputError):
        NoDataclass(2).decode(content, key=7)


def test_a_run_with_it_is_the_same_in_several_processes():
    whole = run(uplink=NoDataclass(1), iterations=24)
    assert same_bits(whole, run(uplink=NoDataclass(1), iterations=24, workers=2))
