"""Sums that do not depend on their order, and the distances to them."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedlama.rows import (
    exact_means,
    exact_sums,
    magnitudes,
    squared_distances,
    unpack,
    with_unpacked,
)
from fedlama.rows.arithmetic import PIECE, SUMMED

# From the subnormal 1e-45 to 3e38
float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
tame = st.floats(min_value=-8, max_value=8, width=32)


@st.composite
def federations(draw):
    """Rows of 1 to 6 clients with weights that add up to one, and two slices with a gap of padding between them."""
    clients, first, second = (
        draw(st.integers(1, 6)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 5)),
    )
    numbers = draw(
        st.sampled_from([float32, tame, st.one_of(float32, tame, st.just(0.0))])
    )
    row = st.lists(numbers, min_size=first + second, max_size=first + second)
    rows = torch.zeros(clients, 16 + second)
    values = torch.tensor(draw(st.lists(row, min_size=clients, max_size=clients)))
    rows[:, :first], rows[:, 16:] = values[:, :first], values[:, first:]
    samples = draw(st.lists(st.integers(1, 1000), min_size=clients, max_size=clients))
    weights = [count / sum(samples) for count in samples]
    return rows, weights, [slice(0, first), slice(16, 16 + second)]


def largest(rows, slices):
    return magnitudes(rows, slices).amax(dim=0).tolist()


def bits(tensor):
    return tensor.view(torch.int64).tolist()


@given(federations(), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_the_order_of_rows(federation, random):
    rows, weights, slices = federation
    order = random.sample(range(len(rows)), len(rows))
    shuffled = exact_sums(
        rows[order], [weights[index] for index in order], slices, largest(rows, slices)
    )
    assert bits(shuffled) == bits(
        exact_sums(rows, weights, slices, largest(rows, slices))
    )


@given(federations(), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_sums_do_not_depend_on_which_process_holds_which_rows(federation, owners):
    rows, weights, slices = federation
    whole = exact_sums(rows, weights, slices, largest(rows, slices))
    shared = torch.zeros_like(whole)
    for process in range(3):  # one of them may hold nothing at all
        mine = [index for index in range(len(rows)) if owners[index] == process]
        shared += exact_sums(
            rows[mine],
            [weights[index] for index in mine],
            slices,
            largest(rows, slices),
        )
    assert bits(shared) == bits(whole)


@given(federations())
def test_sums_are_means_to_a_part_in_10_12_of_the_largest_number(federation):
    rows, weights, slices = federation
    packed = exact_sums(rows, weights, slices, largest(rows, slices)).tolist()
    for part, limit in zip(slices, largest(rows, slices), strict=True):
        for column in range(part.start, part.stop):
            mean = math.fsum(
                w * x
                for w, x in zip(weights, rows[:, column].double().tolist(), strict=True)
            )
            assert abs(packed.pop(0) - mean) <= 1e-12 * limit
    assert not packed


@given(federations())
def test_every_term_is_on_one_grid_so_that_float64_adds_without_rounding(federation):
    rows, weights, slices = federation
    terms = [
        exact_sums(rows[[i]], [weights[i]], slices, largest(rows, slices)).tolist()
        for i in range(len(rows))
    ]
    whole = exact_sums(rows, weights, slices, largest(rows, slices)).tolist()
    assert [sum(map(Fraction, column)) for column in zip(*terms, strict=True)] == list(
        map(Fraction, whole)
    )


def test_a_mean_by_hand():
    # Weights ¼ and ¾: ¼·(4, 8) + ¾·(0, −8) = (1, −4); these are on the grid, so nothing is rounded.
    rows = torch.tensor([[4.0, 8.0, 99.0], [0.0, -8.0, 99.0]])
    assert exact_sums(rows, [0.25, 0.75], [slice(0, 2)], [8.0]).tolist() == [1.0, -4.0]


def test_equal_rows_average_to_themselves():
    # 1/7 is rounded and so is every term, but by less than float32 can see for numbers of 2⁻²⁰ of the largest and more.
    row = torch.logspace(-6, 0, 1000) * torch.tensor([1.0, -1.0]).repeat(500)
    rows = row.repeat(7, 1)
    mean = exact_sums(
        rows, [1 / 7] * 7, [slice(0, 1000)], largest(rows, [slice(0, 1000)])
    )
    assert torch.equal(mean.float(), row)


def test_sums_of_slices_longer_than_a_piece():
    size = 2 * SUMMED + 3
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 16 + size, generator=generator)
    slices, weights = [slice(0, 5), slice(16, 16 + size)], [0.2, 0.3, 0.5]
    packed = exact_sums(rows, weights, slices, largest(rows, slices))
    expected = torch.tensor(weights, dtype=torch.float64) @ rows.double()
    torch.testing.assert_close(
        packed, torch.cat([expected[:5], expected[16:]]), rtol=0, atol=1e-12
    )
    back = exact_sums(rows.flip(0), weights[::-1], slices, largest(rows, slices))
    assert torch.equal(packed.view(torch.int64), back.view(torch.int64))


def test_no_slices_and_no_rows_are_sums_of_nothing():
    assert exact_sums(torch.ones(2, 4), [0.5, 0.5], [], []).tolist() == []
    assert exact_sums(torch.ones(0, 4), [], [slice(0, 2)], [1.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("message", [SUMMED, SUMMED + 7, 1 << 17])
def test_means_go_over_in_messages_and_are_the_sums_rounded_once(monkeypatch, message):
    monkeypatch.setattr("fedlama.rows.arithmetic.MESSAGE", message)
    sizes = [3, 5, 2 * SUMMED + 3, 4, SUMMED, 9]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    slices = [
        slice(start, start + size) for start, size in zip(starts, sizes, strict=True)
    ]
    rows = torch.randn(3, sum(sizes), generator=torch.Generator().manual_seed(0))
    weights, limits = [0.2, 0.3, 0.5], largest(rows, slices)
    elsewhere = exact_sums(rows[2:], weights[2:], slices, limits)
    sent = []

    def sum_(part):  # the third client is another process's
        start = sum(sent)
        part += elsewhere[start : start + len(part)]
        sent.append(len(part))

    means = exact_means(rows[:2], weights[:2], slices, limits, sum_)
    assert torch.equal(means, exact_sums(rows, weights, slices, limits).float())
    assert sum(sent) == sum(sizes)
    assert max(sent) <= message


def test_means_of_a_process_without_clients_are_those_of_the_others():
    means = exact_means(
        torch.ones(0, 4), [], [slice(1, 3)], [1.0], lambda part: part.add_(0.5)
    )
    assert means.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 7])
def test_anchors_cancel_exactly_for_any_number_of_clients(clients):
    # Numbers of very different sizes: many of them lie half-way between two steps of the grid, or below it.
    generator = torch.Generator().manual_seed(clients)
    size = SUMMED + 5
    exponents = torch.randint(-60, 1, (clients, size), generator=generator)
    rows = torch.randn(clients, size, generator=generator) * 2.0**exponents
    weights = [1 / clients] * clients
    slices = [slice(0, size)]
    limits = largest(rows, slices)
    anchor = torch.tensor(
        1.5 * 2.0 ** (math.frexp(limits[0])[1] + 2), dtype=torch.float64
    )
    naive = torch.zeros(size, dtype=torch.float64)
    for row, weight in zip(rows, weights, strict=True):
        naive += torch.add(anchor, row.double(), alpha=weight) - anchor
    assert torch.equal(exact_sums(rows, weights, slices, limits), naive)


def test_a_row_with_other_slices_is_a_copy():
    row = torch.arange(8.0)
    # In any order
    copy = with_unpacked(
        torch.tensor([10.0, 20.0, 30.0]), row, [slice(5, 6), slice(1, 3)]
    )
    assert copy.tolist() == [0, 20, 30, 3, 4, 10, 6, 7]
    assert row.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_unpack_writes_the_slices_and_nothing_else():
    row = torch.full((8,), 7.0)
    unpack(
        torch.tensor([1.0, 2.0, 0.1], dtype=torch.float64),
        row,
        [slice(0, 2), slice(4, 5)],
    )
    # 0.1 rounded to float32
    assert torch.equal(row, torch.tensor([1.0, 2.0, 7.0, 7.0, 0.1, 7.0, 7.0, 7.0]))


def test_unpack_undoes_the_packing():
    row = torch.arange(40.0)
    slices = [slice(0, 3), slice(16, 30)]
    copy = torch.zeros(40)
    unpack(exact_sums(row[None], [1.0], slices, [2.0, 29.0]), copy, slices)
    assert all(torch.equal(copy[part], row[part]) for part in slices)
    # Number 0 of the row is a zero; between the slices nothing was written
    assert int((copy != 0).sum()) == 2 + 14


def test_magnitudes_are_a_clients_largest_absolute_values():
    rows = torch.tensor([[1.0, -3.0, 50.0, 0.0], [-2.0, 1.0, 50.0, -0.5]])
    slices = [slice(0, 2), slice(3, 4)]
    assert magnitudes(rows, slices).tolist() == [[3.0, 0.0], [2.0, 0.5]]
    assert magnitudes(rows, slices).dtype == torch.float64


def test_magnitudes_show_what_is_not_finite():
    rows = torch.tensor(
        [[1.0, math.nan, 2.0], [-math.inf, 1.0, 2.0], [1.0, 1.0, math.nan]]
    )
    found = magnitudes(rows, [slice(0, 2), slice(2, 3)])
    assert found.isfinite().tolist() == [[False, True], [False, True], [True, False]]
    assert math.isnan(found[0, 0])
    assert found[1, 0] == math.inf


def test_magnitudes_of_nobody():
    assert magnitudes(torch.ones(0, 4), [slice(0, 2), slice(2, 4)]).shape == (0, 2)


def distances(mean, row, slices):
    return squared_distances(mean, row[None], slices)[0].tolist()


def test_squared_distances_by_hand():
    # (1−0)² + (2−0)² in the first slice, (3−6)² in the second; the 100 between them is padding.
    mean, row = (
        torch.tensor([1.0, 2.0, 100.0, 3.0]),
        torch.tensor([0.0, 0.0, -100.0, 6.0]),
    )
    assert distances(mean, row, [slice(0, 2)]) == [5.0]
    assert distances(mean, row, [slice(0, 2), slice(3, 4)]) == [5.0, 9.0]
    assert distances(mean, row, []) == []
    assert squared_distances(mean, torch.ones(0, 4), [slice(0, 2)]).shape == (0, 1)


def test_squared_distances_are_added_up_in_float64():
    # 2·PIECE + 1 differences of 1/3 (rounded to float32): in float32 the sum would be off in its fifth digit.
    size = 2 * PIECE + 1
    third = torch.full((size,), 1 / 3)
    expected = size * float(third[0]) ** 2
    assert distances(third, torch.zeros(size), [slice(0, size)]) == [
        pytest.approx(expected, rel=1e-13)
    ]


@pytest.mark.parametrize("slices", [[slice(0, 1)], [slice(0, 1), slice(0, 1)]])
def test_squared_distances_subtract_in_float64(slices):
    # In float32 1 − 1e-8 is 1, and 2e38 − (−2e38) is infinite.
    small = distances(torch.tensor([1.0]), torch.tensor([1e-8]), slices)
    assert small == [pytest.approx((1 - 1e-8) ** 2, rel=1e-12)] * len(slices)
    assert distances(torch.tensor([2e38]), torch.tensor([-2e38]), slices) == [
        pytest.approx(1.6e77)
    ] * len(slices)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(1, 9), st.data()
)
def test_a_clients_distances_do_not_depend_on_who_else_is_here(sizes, clients, data):
    starts = [16 * index + sum(sizes[:index]) for index in range(len(sizes))]
    slices = [
        slice(start, start + size) for start, size in zip(starts, sizes, strict=True)
    ]
    rows = torch.randn(
        clients, slices[-1].stop, generator=torch.Generator().manual_seed(clients)
    )
    chosen = data.draw(st.lists(st.integers(0, clients - 1), min_size=1, unique=True))
    assert bits(squared_distances(rows[0], rows[chosen], slices)) == bits(
        squared_distances(rows[0], rows, slices)[chosen]
    )


def test_slices_are_joined_up_to_a_piece():
    sizes = [10, 20, PIECE - 30, 1, 2 * PIECE, 5, 5]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    slices = [
        slice(start, start + size) for start, size in zip(starts, sizes, strict=True)
    ]
    rows = torch.randn(3, sum(sizes), generator=torch.Generator().manual_seed(0))
    naive = torch.stack(
        [
            (rows[:, part].double() - rows[2, part].double()).square().sum(dim=1)
            for part in slices
        ],
        1,
    )
    torch.testing.assert_close(
        squared_distances(rows[2], rows, slices), naive, rtol=1e-12, atol=0
    )
    mean = exact_sums(rows, [0.2, 0.3, 0.5], slices, largest(rows, slices))
    expected = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64) @ rows.double()
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-12)
