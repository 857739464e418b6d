"""Cast, Quantize, TopK, LowRank and Chain on numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compress.vectors import gaussian, real_difference
from fedlama.compress import Cast, Chain, ErrorFeedback, LowRank, Quantize, Rotate, TopK


def coded(codec, x, key=0, **options):
    return codec.decode(codec.encode(x, key=key, **options).to_bytes(), key=key)


def test_casts_round_as_torch_does():
    x = torch.tensor([1.0, 1 / 3, 1e4, -1e4, 1e-8])
    assert torch.equal(coded(Cast("bfloat16"), x), x.bfloat16().float())
    assert torch.equal(coded(Cast("float16"), x), x.half().float())
    assert torch.equal(coded(Cast("float32"), x), x)
    # format 1, dimensions 1, one size 1, two bytes per number, checksum 4
    assert Cast("bfloat16").encode(x, key=0).nbytes == 7 + 10


@pytest.mark.parametrize("size", [3e-38, 1e-20, 1e-8, 1e-5, 9e-4, 1e5, 1e9, 3e37])
def test_what_float16_cannot_hold_travels_in_units_of_a_power_of_two(size):
    """Tiny differences are not lost and large ones not clipped: eleven digits of each, whatever the tensor's size."""
    x = size * torch.tensor([1.0, -0.7, 0.3, 1e-3, 0.0])
    error = (coded(Cast("float16"), x) - x).abs()
    assert bool((error <= 2.0**-11 * x.abs()).all())
    # format 1, dimensions 1, one size 1, the exponent 1, two bytes per number, checksum 4
    assert Cast("float16").encode(x, key=0).nbytes == 8 + 10


def test_a_power_of_two_by_hand():
    """2⁻²⁰ is multiplied by 2³⁴ to become 2¹⁴; the byte of the exponent follows format, dimensions and size."""
    content = Cast("float16").encode(torch.tensor([2.0**-20]), key=0).to_bytes()
    assert content[3] == 34
    assert content[4:6] == torch.tensor([2.0**14]).half().numpy().tobytes()


@given(
    st.sampled_from([("bfloat16", 2.0**-8), ("float16", 2.0**-11)]),
    st.integers(-100, 100),
    st.lists(st.floats(1, 16, exclude_max=True, width=32), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_cast_errs_by_half_a_unit_of_the_last_digit(
    cast, exponent, numbers, negative
):
    dtype, bound = cast
    x = torch.tensor(numbers) * 2.0**exponent * (-1 if negative else 1)
    error = (coded(Cast(dtype), x).double() - x.double()).abs()
    assert bool((error <= bound * x.double().abs()).all())


def test_the_bounds_of_a_cast_are_reached():
    """1 + 2⁻⁸ lies between the bfloat16 numbers 1 and 1 + 2⁻⁷, 1 + 2⁻¹¹ between the float16 numbers 1 and 1 + 2⁻¹⁰."""
    assert coded(Cast("bfloat16"), torch.tensor([1 + 2.0**-8])).tolist() == [1.0]
    assert coded(Cast("float16"), torch.tensor([1 + 2.0**-11])).tolist() == [1.0]


def test_quantising_to_the_nearest_of_seven_levels():
    """3 bits: levels −3 … 3 of the block's largest magnitude, 6, so multiples of 2."""
    x = torch.tensor([6.0, 0.9, 1.1, -3.1, -5.0, 0.0, 2.0, -2.9, 0.003, -0.0011])
    decoded = coded(Quantize(3, block=8, stochastic=False), x)
    assert decoded[:8].tolist() == pytest.approx([6, 0, 2, -4, -4, 0, 2, -2])
    assert decoded[8:].tolist() == pytest.approx([0.003, -0.001])  # a block of its own


def test_stochastic_rounding_is_right_on_average():
    x = gaussian(512)
    codec = Quantize(2, block=64)
    mean = torch.zeros(512)
    for key in range(2000):
        mean += codec.decode(codec.encode(x, key=key), key=key) / 2000
    # One draw errs by at most a level, the block's largest magnitude: 0.03 · 1/√2000 on average.
    assert float((mean - x).abs().max()) < 0.03 * 4.5 / math.sqrt(2000)


def test_quantised_bytes():
    """log₂ 15 bits per number at 4 bits, and a float32 per block."""
    payload = Quantize(4, block=100).encode(gaussian(10_000), key=0)
    assert payload.nbytes == pytest.approx(10_000 * math.log2(15) / 8 + 400, abs=20)


def test_top_k_keeps_the_largest_magnitudes():
    x = torch.tensor([[0.1, -3.0, 0.2], [2.0, -0.3, 0.0]])
    assert coded(TopK(0.34), x).tolist() == [[0, -3.0, 0], [2.0, 0, 0]]
    assert coded(TopK(0.01), x).tolist() == [[0, -3.0, 0], [0, 0, 0]]
    assert torch.equal(coded(TopK(1), x), x)


@pytest.mark.parametrize(("share", "bits"), [(0.01, 8.08), (0.05, 5.73), (0.2, 3.61)])
def test_positions_cost_what_they_are_worth(share, bits):
    """H₂(ρ)/ρ bits per kept number, beside its 32."""
    payload = TopK(share).encode(gaussian(100_000), key=0)
    assert payload.nbytes == pytest.approx(
        share * 100_000 * (32 + bits) / 8, rel=0.002, abs=20
    )


def test_low_rank_is_exact_for_a_matrix_of_that_rank():
    left, right = gaussian(20 * 2).view(20, 2), gaussian(30 * 2, seed=1).view(30, 2)
    x = left @ right.T
    assert torch.allclose(coded(LowRank(2), x), x, atol=1e-7)
    assert torch.allclose(
        coded(LowRank(2), x.view(20, 5, 3, 2)), x.view(20, 5, 3, 2), atol=1e-7
    )
    # Format, two sizes, checksum
    assert LowRank(2).encode(x, key=0).nbytes == 4 * 2 * (20 + 30) + 4 + 4


def test_low_rank_sends_what_two_factors_would_not_shorten_as_it_is():
    for shape in ((30,), (2, 3), (3, 1, 5)):
        x = gaussian(math.prod(shape)).view(shape)
        assert torch.equal(coded(LowRank(2), x), x)


def test_a_warm_start_brings_the_best_subspace_closer():
    """x as the server last saw it, with some noise: one iteration from there beats one from a random start."""
    x = real_difference()
    known = x + 0.3 * x.std() * torch.randn(
        x.shape, generator=torch.Generator().manual_seed(1)
    )
    cold = warm = 0.0
    for key in range(5):
        cold += float((coded(LowRank(4), x, key) - x).square().sum())
        warm += float((coded(LowRank(4), x, key, warm=known) - x).square().sum())
    singular = torch.linalg.svdvals(x)
    best = 5 * float(singular[4:].square().sum())
    assert best < warm < cold


def test_a_chain_codes_what_the_first_leaves():
    """The kept values 4, −8 and 6 by three-bit levels of 8/3: multiples 2 (or 1), −3, 2."""
    x = torch.tensor([0.1, 4.0, 0.2, -8.0, 0.3, 6.0, 0.1, 0.2, 0.1, 0.1])
    decoded = coded(Chain(TopK(0.3), Quantize(3, block=8, stochastic=False)), x)
    assert decoded.nonzero().view(-1).tolist() == [1, 3, 5]
    assert decoded[[1, 3, 5]].tolist() == pytest.approx([16 / 3, -8, 16 / 3])


def test_factors_at_few_bits():
    """Factors of equal norms: neither is lost in the other's quantisation noise, however small the matrix is."""
    left, right = gaussian(200 * 2).view(200, 2), gaussian(300 * 2, seed=1).view(300, 2)
    for size in (1e-6, 1.0, 1e6):
        x = size * (left @ right.T)
        decoded = coded(Chain(LowRank(2), Rotate(6)), x)
        assert float((decoded - x).square().sum() / x.square().sum()) < 0.002


def test_what_small_tensors_are_coded_with():
    assert Rotate(0.3).for_small_tensors() == Rotate(2.5)
    assert Rotate(0.3, small_bits=4).for_small_tensors() == Rotate(4, small_bits=4)
    assert Quantize(4).for_small_tensors() == Quantize(4)
    assert (
        TopK(0.1).for_small_tensors()
        == LowRank(2).for_small_tensors()
        == Cast("bfloat16")
    )
    assert Chain(TopK(0.1), Quantize(3)).for_small_tensors() == Quantize(3)
    feedback = ErrorFeedback(Rotate(1), profile=(0.5, 0.5))
    assert feedback.for_small_tensors() == ErrorFeedback(Rotate(2.5))
