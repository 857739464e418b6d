"""Rotate held to the law it rests on: noise per bit, bytes, no bias, and a naive twin of its rotation."""

import math

import pytest
import torch

from compress.vectors import VECTORS, gaussian
from fedlama.compress import Rotate
from fedlama.compress.blocks import Blocks
from fedlama.compress.draws import bit_source, rekey
from fedlama.compress.hadamard import hadamard, transform
from fedlama.compress.normal import distortion, index_for, step_of, table
from fedlama.compress.numbers import NotCodableError
from fedlama.compress.rotation import Rotations
from fedlama.compress.water import shared_step_rates

# bits → relative noise v of an entropy-coded uniform quantiser on normal numbers, unbiased
NOISE = {0.32: 2.82, 0.64: 1.139, 1.0: 0.535, 1.6: 0.183, 2.0: 0.0976}
STEPS = {
    0.1: 5.0715,
    0.25: 4.2323,
    0.5: 3.4562,
    1.0: 2.4216,
    1.28: 1.9365,
    2.56: 0.7156,
    4.0: 0.2590,
}


def energy(x: torch.Tensor) -> float:
    return float(x.double().square().sum())


def coded(codec: Rotate, x: torch.Tensor, key: int) -> torch.Tensor:
    return codec.decode(codec.encode(x, key=key), key=key)


@pytest.mark.parametrize("bits", STEPS)
def test_the_step_of_a_rate(bits):
    assert step_of(index_for(bits)) == pytest.approx(STEPS[bits], rel=3e-4)


@pytest.mark.parametrize("bits", NOISE)
def test_the_distortion_of_a_rate(bits):
    """v = D/(1 − D) for a reconstruction that is the conditional mean up to a factor."""
    lost = distortion(bits)
    assert lost / (1 - lost) == pytest.approx(NOISE[bits], rel=2e-3)


def test_the_table_is_the_normal_law():
    """By hand at Δ = 2: P_0 = erf(1/√2) = 0.6827, P_1 = (erfc(1/√2) − erfc(3/√2))/2 = 0.1573."""
    index = round(1.5 * 4096)  # 2^(5/2 − 3/2)
    assert step_of(index) == 2.0
    probabilities = table(index).probabilities
    middle = len(probabilities) // 2
    assert table(index).lowest == -middle
    assert probabilities[middle] == pytest.approx(math.erf(1 / math.sqrt(2)), rel=1e-9)
    tail = (math.erfc(1 / math.sqrt(2)) - math.erfc(3 / math.sqrt(2))) / 2
    assert probabilities[middle + 1] == pytest.approx(tail, rel=1e-9)
    assert probabilities[middle - 1] == probabilities[middle + 1]
    assert float(table(index).costs[middle]) == pytest.approx(
        -math.log2(0.6826895), rel=1e-4
    )


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("bits", NOISE)
def test_noise_bytes_and_bias(vector, bits):
    """On normal, Laplace and real differences alike; the bias from two independent halves of 200 codings."""
    x = VECTORS[vector]()
    codec = Rotate(bits)
    noise = 0.0
    halves = [torch.zeros_like(x), torch.zeros_like(x)]
    for key in range(200):
        payload = codec.encode(x, key=key)
        error = codec.decode(payload, key=key) - x
        noise += energy(error) / 200
        halves[key % 2] += error / 100
        assert payload.estimated_nbytes == pytest.approx(
            bits * x.numel() / 8, rel=0.0095
        )
    assert noise / energy(x) == pytest.approx(NOISE[bits], rel=0.03)
    # The errors of the halves are independent, so what they share is the bias.
    shared = float((halves[0].double() * halves[1].double()).sum()) / energy(x)
    assert shared < 0.02**2
    assert payload.nbytes == pytest.approx(bits * x.numel() / 8, rel=0.01)


@pytest.mark.parametrize("bits", [0.1, 0.32, 3.3, 5.0, 8.0])
@pytest.mark.parametrize("count", [100_000, 100_003, 131_072])
def test_a_rate_is_met_within_a_per_cent(bits, count):
    payload = Rotate(bits).encode(gaussian(count), key=count)
    assert payload.nbytes == pytest.approx(bits * count / 8, rel=0.01)


@pytest.mark.parametrize("bits", [0.1, 1.0, 4.0])
def test_the_two_scales(bits):
    """Unbiased: ⟨x̂, x⟩ = ‖x‖² in every single coding. Least squares: ⟨x̂, x⟩ = ‖x̂‖², the error is orthogonal to x̂."""
    x = VECTORS["real"]()
    unbiased = coded(Rotate(bits), x, 1).double()
    shrunk = coded(Rotate(bits, scale="least_squares"), x, 1).double()
    assert float((unbiased * x).sum()) == pytest.approx(energy(x), rel=1e-5)
    assert float((shrunk * x).sum()) == pytest.approx(energy(shrunk), rel=1e-5)
    assert energy(shrunk - x) / energy(x) == pytest.approx(distortion(bits), rel=0.03)
    ratio = unbiased / shrunk  # the same codes, another factor
    assert float(ratio[shrunk != 0].std()) < 1e-5


@pytest.mark.parametrize(
    ("count", "padded", "block"),
    [
        (9 * 16 * 16, 9 * 256, 256),
        (9 * 64 * 64, 9 * 4096, 1024),
        (9 * 32 * 64, 9 * 2048, 1024),
        (640, 640, 128),
        (1610, 1664, 128),
        (100, 128, 128),
        (10, 16, 16),
        (1, 1, 1),
        (100_003, 100_032, 64),
    ],
)
def test_kernels_of_nine_times_a_power_of_two_need_no_padding(count, padded, block):
    blocks = Blocks.of(count)
    assert (blocks.padded, blocks.block) == (padded, block)


@pytest.mark.parametrize("count", [1, 2, 5, 64, 100, 144, 1536])
def test_the_rotation_against_a_naive_twin(count):
    """Column by column it is an orthogonal matrix, and `backward` is its transpose."""
    rotation = Rotations.of((count,))
    matrix = torch.stack(
        [rotation.forward([unit], [5]) for unit in torch.eye(count)], dim=1
    )
    assert torch.allclose(matrix.T @ matrix, torch.eye(count), atol=1e-5)
    assert torch.allclose(
        matrix.abs()[matrix != 0], torch.tensor(rotation.block**-0.5), rtol=1e-5
    )
    codes = torch.arange(rotation.total).remainder(5) - 2.0
    (back,) = rotation.backward(codes, [0.25], [5])
    assert torch.allclose(back, 0.25 * matrix.T @ codes, atol=1e-5)


def test_hadamard_matrices_by_hand():
    assert hadamard(1).tolist() == [[1]]
    assert hadamard(4).tolist() == [
        [1, 1, 1, 1],
        [1, -1, 1, -1],
        [1, 1, -1, -1],
        [1, -1, -1, 1],
    ]


def test_a_transform_of_a_block_is_the_product_with_one_large_matrix():
    values = gaussian(3 * 1024)
    transformed = torch.empty_like(values)
    transform(values, 1024, normalised=False, out=transformed)
    expected = values.view(3, 1024) @ torch.kron(hadamard(32), hadamard(32))
    assert torch.allclose(transformed.view(3, 1024), expected, atol=1e-4)


@pytest.mark.parametrize("block", [1, 2, 8, 64, 128, 512, 1024])
def test_a_normalised_transform_is_one_divided_by_the_root_to_the_last_bit(block):
    values = gaussian(3 * block)
    plain, normalised = torch.empty_like(values), torch.empty_like(values)
    transform(values, block, normalised=False, out=plain)
    transform(values, block, normalised=True, out=normalised)
    assert torch.equal(normalised, plain * (1 / math.sqrt(block)))


def test_a_source_that_is_keyed_anew_goes_on_as_a_new_one():
    source = bit_source(3)
    source.random_raw(5)
    for key in (0, 7, 2**64 + 1, 2**128 - 1):
        rekey(source, key)
        assert source.random_raw(9).tolist() == bit_source(key).random_raw(9).tolist()


@pytest.mark.parametrize("bits", [0.5, 2.0])
@pytest.mark.parametrize(
    "structure", ["spike", "one row", "one tap", "constant", "stripes"]
)
def test_structure_in_a_kernel_does_no_harm(structure, bits):
    """One scale suffices for all blocks: the noise stays that of normal numbers, or below."""
    x = torch.zeros(64, 64, 3, 3)
    if structure == "spike":
        x[3, 5, 1, 1] = 1.0
    elif structure == "one row":
        x[7] = gaussian(64 * 9).view(64, 3, 3)
    elif structure == "one tap":
        x[:, :, 1, 1] = gaussian(64 * 64).view(64, 64)
    elif structure == "constant":
        x[:] = 0.5
    else:
        x[:, ::8] = 1.0
    noise = 0.0
    for key in range(20):
        noise += energy(coded(Rotate(bits), x, key) - x) / energy(x) / 20
    lost = distortion(bits)
    assert noise < 1.1 * lost / (1 - lost)


def test_errors_of_two_clients_are_independent():
    """The same numbers under two keys: the error of the mean of sixteen is a sixteenth."""
    x = VECTORS["real"]()
    errors = [coded(Rotate(1.0), x, key) - x for key in range(16)]
    mean = sum(errors) / 16
    assert energy(mean) / energy(x) == pytest.approx(0.535 / 16, rel=0.05)


def test_tiny_tensors_get_finer_steps_instead_of_nothing():
    for count in (1, 2, 3, 10):
        x = gaussian(count)
        decoded = coded(Rotate(0.1), x, 0)
        assert float((decoded.double() * x).sum()) == pytest.approx(energy(x), rel=1e-5)


@pytest.mark.parametrize("shapes", [[(40, 50)], [(40, 50), (40, 50)]], ids=str)
def test_numbers_at_the_end_of_float32_are_refused(shapes):
    """Each is finite, but the transform adds up to 1,024 of them; alone and rotated together with others."""
    tensors = [3e38 * gaussian(math.prod(shape)).sign().view(shape) for shape in shapes]
    count = len(tensors)
    with pytest.raises(NotCodableError, match="too large to be coded"):
        Rotate(1).code_all(
            tensors, keys=range(count), bits=[None] * count, warm=[None] * count
        )
    with pytest.raises(NotCodableError, match="too large to be coded"):
        Rotate(1).encode(tensors[0], key=7)


def test_shared_step_rates_meet_the_budget_and_follow_the_size_of_a_change():
    sizes = [1000, 2000, 4000]
    rates = shared_step_rates([4.0, 2.0, 1.0], sizes, 1.5, may_skip=False)
    assert sum(
        rate * size for rate, size in zip(rates, sizes, strict=True)
    ) == pytest.approx(1.5 * 7000, rel=1e-3)
    assert rates[0] > rates[1] > rates[2]
    # At high rates one step for all means one bit more for each doubling (R = ½log₂(σ²/θ)).
    high = shared_step_rates([4.0, 2.0, 1.0], sizes, 5.0, may_skip=False)
    assert high[0] - high[1] == pytest.approx(1.0, abs=0.01)
    assert high[1] - high[2] == pytest.approx(1.0, abs=0.01)


def test_a_group_that_hardly_moved_is_skipped_only_by_senders_with_a_memory():
    assert shared_step_rates([1.0, 1e-6], [1000, 1000], 1.0, may_skip=True)[1] == 0.0
    assert shared_step_rates([1.0, 1e-6], [1000, 1000], 1.0, may_skip=False)[1] == 0.1
    assert shared_step_rates([1.0, 0.0], [1000, 1000], 1.0, may_skip=False)[1] == 0.0
    assert shared_step_rates([0.0, 0.0], [10, 10], 1.0, may_skip=True) == [1.0, 1.0]
    assert shared_step_rates(
        [3.0, 3.0], [10, 10], 2.0, may_skip=False
    ) == pytest.approx([2.0, 2.0], abs=1e-3)
