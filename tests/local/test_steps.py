"""Unequal numbers of steps: a number, epochs, or drawn for each client and window."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedlama
from doors.harness import check_door, run, same_bits, weights, wide_network
from fedlama import SGD, InputError
from fedlama.compress import Chain, ErrorFeedback, LowRank, Quantize, Rotate, TopK
from fedlama.local import MODEL, steps_per_interval, steps_taken


def pace(option, *, samples=10, window=0, client=0):
    return steps_per_interval(
        option, samples=samples, batch_size=4, seed=1, window=window, client=client
    )


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
        (client, window): pace((2, 5), client=client, window=window)
        for client in range(20)
        for window in range(9)
    }
    assert set(drawn.values()) == {2, 3, 4, 5}
    assert len({drawn[client, 0] for client in range(20)}) > 1
    assert len({drawn[0, window] for window in range(9)}) > 1
    assert all(pace((4, 4), client=client) == 4 for client in range(5))


@given(st.integers(1, 9), st.integers(1, 7), st.integers(0, 5), st.integers(1, 6))
def test_steps_of_whole_intervals_add_up(per_interval, base, first, rounds):
    """Round by round or over a long interval: a client takes the same local steps, each of them once."""
    whole = range(first * base, (first + rounds) * base)
    parts = [
        steps_taken(per_interval, base, range(start, start + base))
        for start in whole[::base]
    ]
    assert [step for part in parts for step in part] == list(
        steps_taken(per_interval, base, whole)
    )
    assert len(steps_taken(per_interval, base, whole)) == per_interval * rounds


@given(
    st.integers(1, 9),
    st.integers(1, 7),
    st.integers(0, 30),
    st.lists(st.integers(1, 8), min_size=1, max_size=6),
)
def test_steps_of_any_stretches_add_up(per_interval, base, start, lengths):
    """However global steps are split into rounds, a client takes each of its local steps once."""
    taken = []
    stop = start
    for length in lengths:
        taken += steps_taken(per_interval, base, range(stop, stop + length))
        stop += length
    assert taken == list(steps_taken(per_interval, base, range(start, stop)))
    for step in taken:
        # The global step in which it is taken
        assert start <= step * base // per_interval < stop


def test_a_slow_client_takes_no_step_in_some_rounds():
    """τ' = 6 in three rounds of two global steps: one local step is the first round's, two are in two of them."""
    assert [
        len(steps_taken(1, 6, range(start, start + 2))) for start in (12, 14, 16)
    ] == [1, 0, 0]
    assert [
        len(steps_taken(2, 6, range(start, start + 2))) for start in (12, 14, 16)
    ] == [1, 1, 0]
    assert steps_taken(1, 6, range(12, 18)) == range(2, 3)


def test_a_round_that_the_runs_end_cuts_short_has_at_least_one_step():
    assert steps_taken(1, 6, range(12, 14)) == range(2, 3)
    assert steps_taken(None, 6, range(12, 14)) == range(12, 14)
    assert steps_taken(12, 6, range(12, 14)) == range(24, 28)


def accelerated(**options):
    """τ' = 6, of which some layers are averaged every two steps."""
    policy = fedlama.FedLAMA(6, 3, "accelerate")
    return run(policy=policy, window=12, iterations=24, **options)


def test_no_batch_is_trained_twice_in_accelerated_rounds():
    """One step per base interval, as with FedAvg at that interval, however many rounds it has."""
    steps = []

    class Watched(fedlama.FedProx):
        def step(self, row, gradient, own, server, *, rate, kernels):
            steps.append(rate)
            super().step(row, gradient, own, server, rate=rate, kernels=kernels)

    result = accelerated(local=Watched(SGD(0.1, 4, steps=1), 0.1))
    # Otherwise nothing was tried
    assert any(record.step % 6 for record in result.records)
    count = len(steps)
    steps.clear()
    run(
        policy=fedlama.FedAvg(6),
        window=12,
        iterations=24,
        local=Watched(SGD(0.1, 4, steps=1), 0.1),
    )
    assert count == len(steps)


@pytest.mark.parametrize(
    "rule", [SGD, fedlama.FedNova, fedlama.FedDyn, fedlama.FedProx]
)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rounds_without_a_step_are_finite(rule, momentum):
    local = SGD(0.05, 4, steps=(1, 4), momentum=momentum)
    if rule is fedlama.FedNova:
        local = rule(local)
    elif rule is not SGD:
        local = rule(local, 0.1)
    result = accelerated(local=local)
    assert any(record.step % 6 for record in result.records)
    for record in result.records:
        assert math.isfinite(record.loss)
        # a client without a step is no client with a loss of zero
        assert record.loss > 0.1
    assert bool(torch.isfinite(weights(result)).all())


@pytest.mark.parametrize(
    "codec",
    [Rotate(0.64), Quantize(4), Chain(LowRank(2), Rotate(1.6)), TopK(0.2)],
    ids=repr,
)
def test_a_message_without_a_change_can_be_coded(codec):
    result = accelerated(
        model=wide_network,
        local=SGD(0.05, 4, steps=1),
        uplink=ErrorFeedback(codec),
    )
    assert bool(torch.isfinite(weights(result)).all())


def test_fednova_without_a_step_by_hand():
    """Two clients of equal weight, schedule of two steps: one took two and moved by 4, the other took none."""
    nova = fedlama.FedNova(SGD(0.1, 4, steps=(1, 2)))
    anchor = torch.tensor([1.0])
    rows = torch.tensor([[5.0], [1.0]])
    nova.sync(rows, {}, {MODEL: anchor}, steps=range(2), taken=torch.tensor([[2], [0]]))
    assert rows.tolist() == [[5.0], [1.0]]
    # per step 2 from those who took any, times one step on average
    merged = nova.merge(
        anchor, rows.mean(0), {}, steps=range(2), taken=[(0.5, 2), (0.5, 0)], share=1.0
    )
    assert merged.tolist() == [3.0]
    # one step in place of two: it sends what two would have amounted to
    rows = torch.tensor([[3.0], [1.0]])
    nova.sync(rows, {}, {MODEL: anchor}, steps=range(2), taken=torch.tensor([[1], [0]]))
    assert rows.tolist() == [[5.0], [1.0]]
    merged = nova.merge(
        anchor, rows.mean(0), {}, steps=range(2), taken=[(0.5, 1), (0.5, 0)], share=1.0
    )
    assert merged.tolist() == [2.0]
    nobody = nova.merge(
        anchor, anchor, {}, steps=range(2), taken=[(0.5, 0), (0.5, 0)], share=1.0
    )
    assert nobody.tolist() == [1.0]


@pytest.mark.parametrize(
    "option",
    [
        0,
        -1,
        1.5,
        True,
        "2",
        "epochs",
        "0 epochs",
        "1e9 epochs",
        [],
        [1],
        [3, 2],
        [0, 2],
    ],
)
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
    # Stretches of a row, for three clients with four steps each
    per_step = len(rates) // (3 * 4)
    first_client = rates[: 4 * per_step : per_step]
    assert first_client == pytest.approx([0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("steps", [3, "1 epoch", (1, 4)])
def test_unequal_steps_survive_workers_and_kills(steps):
    result = check_door(local=fedlama.FedNova(SGD(0.05, 4, steps=steps)))
    assert not same_bits(result, run(local=SGD(0.05, 4)))


def test_unequal_steps_are_not_stacked():
    data = fedlama.data.arrays(
        torch.randn(24, 6), torch.arange(24) % 3, torch.randn(3, 6), torch.arange(3)
    )
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
