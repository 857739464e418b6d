"""Shapes of what goes in and comes out where rows are added up, checked by jaxtyping instead of by names."""

from beartype import beartype
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float, Float64, jaxtyped
from torch import Tensor, randn

from fedlama.core import Layout, TensorEntry
from fedlama.rows import magnitudes, pack, squared_distances
from fedlama.server import ListReduce

checked = jaxtyped(typechecker=beartype)


@checked
def largest(
    rows: Float[Tensor, "clients width"], slices: list[slice]
) -> Float64[Tensor, "clients {len(slices)}"]:
    return magnitudes(rows, slices)


@checked
def distances(
    mean: Float[Tensor, " width"],
    rows: Float[Tensor, "clients width"],
    slices: list[slice],
) -> Float64[Tensor, "clients {len(slices)}"]:
    return squared_distances(mean, rows, slices)


@checked
def packed(
    row: Float[Tensor, " width"], slices: list[slice], total: int
) -> Float[Tensor, " {total}"]:
    return pack(row, slices)


@checked
def mean_of(
    reduce: ListReduce, slices: list[slice], total: int
) -> Float[Tensor, " {total}"]:
    return reduce.mean(slices)


@given(st.integers(1, 5), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_rows_in_numbers_per_client_and_slice_out(clients, sizes):
    layout = Layout.pack(
        [TensorEntry(f"layer{number}", size) for number, size in enumerate(sizes)]
    )
    rows = randn(clients, layout.width)
    slices = layout.slices_of(range(len(sizes)))
    largest(rows, slices)
    distances(rows[0], rows, slices)
    packed(rows[0], slices, sum(sizes))
    mean_of(ListReduce(layout, list(rows), [1.0] * clients), slices, sum(sizes))
