"""Ways of `Rotate` that exist for speed alone give the numbers of the plain ones, bit by bit."""

import pytest
import torch

from fedlama.compress import Channel, MessagePlace, Rotate
from fedlama.compress.joint_costs import joint_costs
from fedlama.compress.normal import index_for, largest_symbol, table
from fedlama.compress.rotation import Rotations
from fedlama.compress.scratch import LARGE, kept_memory, lasting_tensor, working_tensor
from fedlama.rows import describe


@pytest.mark.parametrize("bits", [0.1, 0.64, 1.6, 3.0, 8.0])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 1000, 65536])
def test_costs_of_neighbours_are_the_sum_of_their_own(bits, count):
    index = index_for(bits)
    largest = largest_symbol(index)
    symbols = torch.randint(
        -largest, largest + 1, (count,), generator=torch.Generator().manual_seed(count)
    ).float()
    one_by_one = 0.0
    for symbol in symbols.tolist():
        one_by_one += float(table(index).costs[int(symbol) + largest])
    assert joint_costs(index).of(symbols) == one_by_one


@pytest.mark.parametrize("count", [1 << 15, (1 << 16) - 64, 1 << 16, (1 << 16) + 64])
def test_a_code_does_not_depend_on_its_company(count):
    """Around the size above which tensors are rotated alone, and their rate is corrected."""
    generator = torch.Generator().manual_seed(count)
    # Far from normal in every block, so that a rate would need to be corrected
    x = torch.randn(count, generator=generator) * (
        torch.rand(count, generator=generator) < 0.01
    )
    other = torch.randn(count, generator=generator)
    codec = Rotate(0.5)
    (alone,) = codec.code_all([x], keys=[1], bits=[None], warm=[None])
    first, _ = codec.code_all([x, other], keys=[1, 2], bits=[None] * 2, warm=[None] * 2)
    assert first.side == alone.side
    assert torch.equal(first.runs[0].symbols, alone.runs[0].symbols)


@pytest.mark.parametrize("key", range(5))
def test_pieces_of_a_large_tensor_are_put_back_in_their_places(key):
    count = 3 << 18
    rotations = Rotations.of((count,))
    x = torch.randint(
        -3, 4, (count,), generator=torch.Generator().manual_seed(key)
    ).float()
    y = rotations.forward([x], [key])
    (back,) = rotations.backward(y, [1.0], [key])
    torch.testing.assert_close(back, x, rtol=0, atol=1e-4)


def test_kept_memory_changes_no_number_and_is_given_back():
    module = torch.nn.Sequential(torch.nn.Linear(1024, 600), torch.nn.Linear(600, 1024))
    layout = describe(module, "tensor")
    channel = Channel(Rotate(1.6), layout, seed=3)
    due = range(len(layout.layers))
    rows = []
    for seed in range(3):
        rows.append(
            torch.randn(layout.width, generator=torch.Generator().manual_seed(seed))
        )
    fresh = [
        channel.simulate(row, due, MessagePlace(round=1, client=client))
        for client, row in enumerate(rows)
    ]
    with kept_memory():
        for client, row in enumerate(rows):
            message = channel.simulate(row, due, MessagePlace(round=1, client=client))
            assert torch.equal(message.row, fresh[client].row)
            assert message.charged == fresh[client].charged
            assert message.to_bytes() == fresh[client].to_bytes()
        assert (
            working_tensor(LARGE, "rotated").data_ptr()
            == working_tensor(LARGE, "rotated").data_ptr()
        )
        assert lasting_tensor(LARGE).data_ptr() != lasting_tensor(LARGE).data_ptr()
        assert lasting_tensor(LARGE).data_ptr() % 64 == 0
    first = working_tensor(LARGE, "rotated")
    second = working_tensor(LARGE, "rotated")
    assert first.data_ptr() != second.data_ptr()
