"""Unequal numbers of steps: a number, epochs, or drawn for each client and window."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedlama
from doors.harness import check_door, run, same_bits
from fedlama import SGD, InputError
from fedlama.local import steps_per_interval, steps_taken


def pace(option, *, samples=10, window=0, client=0):
    return steps_per_interval(option, samples=samples, batch_size=4, seed=1, window=window, client=client)


def test_a_number_is_that_number():
    assert pace(None) is None
    assert pace(3) == 3


def test_epochs_are_batches_rounded_up():
    assert pace("1 epoch", samples=10) == 3  # 4 + 4 + 2
    assert pace("2 epochs", samples=10) == 5  # 20 samples in batches of 4
    assert pace("0.5 epochs", samples=8) == 1
    assert pace("0.01 epochs", samples=8) == 1  # never none


def test_drawn_numbers_are_within_limits_and_vary_by_client_and_window():
    drawn = {
        (client, window): pace((2, 5), client=client, window=window) for client in range(20) for window in range(9)
    }
    assert set(drawn.values()) == {2, 3, 4, 5}
    assert len({drawn[client, 0] for client in range(20)}) > 1
    assert len({drawn[0, window] for window in range(9)}) > 1
    assert all(pace((4, 4), client=client) == 4 for client in range(5))


@given(st.integers(1, 9), st.integers(1, 7), st.integers(0, 5), st.integers(1, 6))
def test_steps_of_whole_intervals_add_up(per_interval, base, first, rounds):
    """Round by round or over a long interval: a client takes the same local steps, each of them once."""
    whole = range(first * base, (first + rounds) * base)
    parts = [steps_taken(per_interval, base, range(start, start + base)) for start in whole[::base]]
    assert [step for part in parts for step in part] == list(steps_taken(per_interval, base, whole))
    assert len(steps_taken(per_interval, base, whole)) == per_interval * rounds


def test_a_round_that_the_runs_end_cuts_short_has_at_least_one_step():
    assert steps_taken(1, 6, range(12, 14)) == range(2, 3)
    assert steps_taken(None, 6, range(12, 14)) == range(12, 14)
    assert steps_taken(12, 6, range(12, 14)) == range(24, 28)


@pytest.mark.parametrize("option", [0, -1, 1.5, True, "2", "epochs", "0 epochs", "1e9 epochs", [], [1], [3, 2], [0, 2]])
def test_what_is_no_number_of_steps_is_refused(option):
    with pytest.raises(InputError, match="steps"):
        SGD(0.1, 4, steps=option)


def test_a_list_and_a_tuple_are_one_value():
    assert SGD(0.1, 4, steps=[1, 3]) == SGD(0.1, 4, steps=(1, 3))
    assert hash(SGD(0.1, 4, steps=[1, 3])) == hash(SGD(0.1, 4, steps=(1, 3)))


def test_the_rate_follows_the_schedule_whatever_the_pace():
    """Four local steps in two global ones, of which the second has a tenth of the rate: two steps at each."""
    rates: list[float] = []

    class Watched(fedlama.FedNova):
        def step(self, row, gradient, own, server, *, rate, kernels):
            rates.append(rate)
            super().step(row, gradient, own, server, rate=rate, kernels=kernels)

    base = SGD(0.1, 4, steps=4, decay_steps=(1,))
    run(local=Watched(base), policy=fedlama.FedAvg(2), iterations=2, window=2)
    per_step = len(rates) // (3 * 4)  # stretches of a row, for three clients with four steps each
    first_client = rates[: 4 * per_step : per_step]
    assert first_client == pytest.approx([0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("steps", [3, "1 epoch", (1, 4)])
def test_unequal_steps_survive_workers_and_kills(steps):
    result = check_door(local=fedlama.FedNova(SGD(0.05, 4, steps=steps)))
    assert not same_bits(result, run(local=SGD(0.05, 4)))


def test_unequal_steps_are_not_stacked():
    data = fedlama.data.arrays(torch.randn(24, 6), torch.arange(24) % 3, torch.randn(3, 6), torch.arange(3))
    with pytest.raises(InputError, match="clients take unequal numbers of steps"):
        fedlama.simulate(
            lambda: torch.nn.Linear(6, 3),
            data,
            policy=fedlama.FedAvg(2),
            local=SGD(0.1, 4, steps=3),
            partition=fedlama.IID(clients=3),
            iterations=4,
            execution="stacked",
        )
