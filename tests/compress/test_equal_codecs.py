"""Codecs that are equal read each other's bytes, however their numbers were written."""

import numpy as np
import pytest
import torch

from fedlama.compress import LowRank, Quantize


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
