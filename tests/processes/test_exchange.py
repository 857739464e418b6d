"""Sums through shared memory: the same numbers as one process would add up, whatever their size and type."""

import os

import pytest
import torch

from fedlama.processes.exchange import SLOT
from fedlama.processes.workers import run_workers


def combined(count, work):
    """What rank 0 returns from `work(world)`."""
    return run_workers(
        count, lambda world, emit: work(world), lambda message: None, "gloo"
    )


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.int64, torch.uint8]
)
def test_sums_and_maxima_over_all_processes(count, dtype):
    def work(world):
        total, largest = (
            torch.tensor([[1, 2], [3, world.rank]], dtype=dtype),
            torch.tensor([world.rank], dtype=dtype),
        )
        world.sum_(total)
        world.max_(largest)
        return total.tolist(), largest.tolist()

    assert combined(count, work) == (
        [[count, 2 * count], [3 * count, sum(range(count))]],
        [count - 1],
    )


def test_more_numbers_than_a_slot_holds_go_over_in_parts():
    length = 2 * SLOT // 8 + 3

    def work(world):
        values = torch.arange(length, dtype=torch.float64) * (world.rank + 1)
        world.sum_(values)
        return bool(torch.equal(values, torch.arange(length, dtype=torch.float64) * 6))

    assert combined(3, work) is True


def test_nothing_is_a_sum_too():
    def work(world):
        values = torch.zeros(0, 4)
        world.sum_(values)
        return list(values.shape)

    assert combined(2, work) == [0, 4]


def test_a_slow_process_is_not_overtaken():
    """Processes that come at different moments never read each other's next numbers."""

    def work(world):
        wrong = 0
        for turn in range(400):
            if (turn * 7 + world.rank * 3) % 11 == 0:
                os.sched_yield()
            value = torch.tensor([turn * (world.rank + 1)])
            world.sum_(value)
            wrong += int(value) != turn * 6
        return wrong

    assert combined(3, work) == 0


def test_what_rank_0_has_reaches_everyone():
    def work(world):
        content = world.from_first(b"saved" if world.rank == 0 else b"other")
        same = torch.tensor([int(content == b"saved")])
        world.sum_(same)
        return int(same)

    assert combined(3, work) == 3
