"""Tensors that are rotated together become what each becomes alone, bit for bit."""

import pytest
import torch

from fedlama.compress import ErrorFeedback, Quantize, Rotate

SIZES = (2304, 2304, 36864, 4608, 1600, 3450, 10, 63, 64, 70_000, 9216, 2304)


@pytest.mark.parametrize(
    "codec",
    [Rotate(1.6), Rotate(0.3), ErrorFeedback(Rotate(0.64)), Quantize(4)],
    ids=str,
)
def test_together_is_as_each_alone(codec):
    generator = torch.Generator().manual_seed(2)
    tensors = [torch.randn(size, generator=generator) for size in SIZES]
    tensors[3].zero_()  # nothing to send
    keys = list(range(100, 100 + len(SIZES)))
    bits = [None] * len(SIZES)
    bits[5] = 0.0  # not in this round
    bits[7] = 3.0
    together = codec.code_all(tensors, keys=keys, bits=bits, warm=[None] * len(SIZES))
    shapes = [tuple(x.shape) for x in tensors]
    rebuilt = codec.rebuild_all(together, shapes, keys=keys)
    for x, key, rate, one, values in zip(
        tensors, keys, bits, together, rebuilt, strict=True
    ):
        alone = codec.code(x, key=key, bits=rate)
        assert one.side == alone.side
        assert len(one.runs) == len(alone.runs)
        for run, other in zip(one.runs, alone.runs, strict=True):
            assert torch.equal(run.symbols, other.symbols)
        assert torch.equal(values, codec.rebuild(alone, tuple(x.shape), key=key))
