"""Server rules and the moving average against numbers derived by hand, and what theory promises of them."""

import math

import pytest
import torch
from torch import nn

import fedlama
from doors.harness import check_door, run, same_bits, weights
from fedlama.compress import Channel, Rotate
from fedlama.core import Evidence, RoundPlan, Traffic, advance
from fedlama.rows import describe
from fedlama.server import Adam, ListReduce, Mean, Momentum, Server, Yogi
from fedlama.server.adaptive import FIRST, SECOND
from fedlama.server.momentum import VELOCITY


def apply(rule, anchor, mean, own, *, count=0, periods=1.0):
    return rule.apply(
        torch.tensor([anchor]), torch.tensor([mean]), own, count=count, periods=periods
    ).tolist()


def test_mean_is_the_mean():
    assert apply(Mean(), 1.0, 3.0, {}) == [3.0]


def test_momentum_by_hand():
    # Δ = 2: m = 2, x = 1 + ½·2 = 2. Then Δ = 1: m = 0.8·2 + 1 = 2.6, x = 2 + ½·2.6 = 3.3
    own = {VELOCITY: torch.zeros(1)}
    rule = Momentum(0.8, rate=0.5)
    assert apply(rule, 1.0, 3.0, own) == [2.0]
    assert apply(rule, 2.0, 3.0, own, count=1) == pytest.approx([3.3])
    assert own[VELOCITY].tolist() == pytest.approx([2.6])


def test_memory_is_counted_in_steps():
    # A layer with an interval of 4τ': β_l = 0.9⁴ = 0.6561, so m = 0.6561·10 + 1 = 7.561
    own = {VELOCITY: torch.tensor([10.0])}
    assert apply(Momentum(0.9), 0.0, 1.0, own, count=3, periods=4.0) == pytest.approx(
        [7.561]
    )
    # Cut short by the run's end at half an interval: β_l = 0.81^½ = 0.9
    own = {VELOCITY: torch.tensor([10.0])}
    assert apply(Momentum(0.81), 0.0, 1.0, own, count=3, periods=0.5) == pytest.approx(
        [10.0]
    )


def test_nesterov_looks_ahead():
    # m = 0.5·2 + 1 = 2; x = 0 + 0.7·(1 + 0.5·2) = 1.4
    own = {VELOCITY: torch.tensor([2.0])}
    assert apply(
        Momentum(0.5, rate=0.7, nesterov=True), 0.0, 1.0, own
    ) == pytest.approx([1.4])


def test_nesterov_is_that_of_torch():
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([parameter], lr=0.7, momentum=0.9, nesterov=True)
    own = {VELOCITY: torch.zeros(1)}
    row = torch.tensor([1.0])
    for change in (0.5, -0.25, 0.125):
        parameter.grad = torch.tensor([-change])
        optimizer.step()
        row = Momentum(0.9, rate=0.7, nesterov=True).apply(
            row, row + change, own, count=0, periods=1.0
        )
        torch.testing.assert_close(row, parameter.detach())


def test_the_look_ahead_is_fedacg():
    """FedACG: m ← λm + Δ̄ with Δ̄ from the point that was sent; the model is the mean; sent is the model + λm."""
    beta, own, sent = 0.85, {VELOCITY: torch.zeros(1)}, torch.tensor([1.0])
    momentum, model = torch.zeros(1), torch.tensor([1.0])
    for change in (0.5, -0.25, 0.125):
        mean = sent + change
        momentum = beta * momentum + change
        model = model + momentum
        expected = model + beta * momentum
        torch.testing.assert_close(model, mean)  # so it is, in exact numbers
        sent = Momentum(beta, nesterov=True).apply(
            sent, mean, own, count=0, periods=1.0
        )
        torch.testing.assert_close(sent, expected)


def test_adam_by_hand():
    # ε = 0.1, so v starts at 0.01. Δ = 2: m = 0.1·2 = 0.2, v = 0.99·0.01 + 0.01·4 = 0.0499
    own = {FIRST: torch.zeros(1), SECOND: torch.zeros(1)}
    rule = Adam(0.5, beta1=0.9, beta2=0.99, epsilon=0.1)
    assert apply(rule, 1.0, 3.0, own) == pytest.approx(
        [1 + 0.5 * 0.2 / (math.sqrt(0.0499) + 0.1)]
    )
    # Then Δ = −1: m = 0.9·0.2 − 0.1 = 0.08, v = 0.99·0.0499 + 0.01 = 0.059401
    assert apply(rule, 1.0, 0.0, own, count=1) == pytest.approx(
        [1 + 0.5 * 0.08 / (math.sqrt(0.059401) + 0.1)]
    )


def test_yogi_by_hand():
    # v = 0.01 < Δ² = 4, so v grows by 0.01·4 to 0.05; then Δ² = 0.01 < v: it falls by 0.01·0.01 to 0.0499
    own = {FIRST: torch.zeros(1), SECOND: torch.zeros(1)}
    rule = Yogi(0.5, beta1=0.9, beta2=0.99, epsilon=0.1)
    assert apply(rule, 1.0, 3.0, own) == pytest.approx(
        [1 + 0.5 * 0.2 / (math.sqrt(0.05) + 0.1)]
    )
    apply(rule, 1.0, 1.1, own, count=1)
    assert own[SECOND].tolist() == pytest.approx([0.0499])


def test_both_moments_of_a_long_layer_are_counted_in_steps():
    # Over 4τ' with β₁ = 0.9 and β₂ = 0.5: m = 0.6561·1 + 0.3439·2, v = 0.0625·1 + 0.9375·4
    own = {FIRST: torch.ones(1), SECOND: torch.ones(1)}
    apply(Adam(0.5, beta1=0.9, beta2=0.5), 0.0, 2.0, own, count=5, periods=4.0)
    assert own[FIRST].tolist() == pytest.approx([1.3439])
    assert own[SECOND].tolist() == pytest.approx([3.8125])


# What theory promises


def test_no_momentum_is_the_mean():
    assert same_bits(run(server=Momentum(0.0)), run())
    assert same_bits(run(server=Momentum(0.0, nesterov=True)), run())


def test_half_a_rate_without_momentum_goes_half_the_way():
    once = {"iterations": 2, "window": 2, "policy": fedlama.FedAvg(2)}
    start = weights(run(local=fedlama.SGD(1e-30, 4), **once))
    # The first layer and BatchNorm's scale and shift, which statistics follow
    trained = slice(0, 84 + 24)
    full = weights(run(**once))
    half = weights(run(server=Momentum(0.0, rate=0.5), **once))
    torch.testing.assert_close(
        half[trained], (start + (full - start) / 2)[trained], rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize(
    "rule",
    [Momentum(0.8, rate=0.5), Momentum(0.5, nesterov=True), Adam(0.02), Yogi(0.02)],
    ids=str,
)
def test_rules_survive_workers_and_kills(rule):
    check_door(server=rule, evaluate="ema", average_steps=10)


# What belongs to a layer moves only when the layer is due


class Two(nn.Module):
    """Two layers of one number each."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor([1.0]))
        self.b = nn.Parameter(torch.tensor([2.0]))


LAYOUT = describe(Two())


def row_of(a, b):
    """A row of the model; tensors need not lie side by side in it."""
    row = torch.zeros(LAYOUT.width)
    for value, layer in zip((a, b), LAYOUT.layers, strict=True):
        (part,) = layer.slices
        row[part] = value
    return row


def numbers(row):
    return [float(row[layer.slices[0]]) for layer in LAYOUT.layers]


def closed(server, state, due, *clients, ends_cycle=True):
    """After a round of two steps, to which these clients came with their two numbers."""
    plan = RoundPlan(
        2,
        due,
        range(state.policy_state.cycle_start, state.step + 2),
        ends_cycle=ends_cycle,
    )
    reduce = ListReduce(
        LAYOUT, [row_of(*client) for client in clients], [1.0] * len(clients)
    )
    return server.close(state, plan, reduce, Traffic())


def test_state_of_a_layer_advances_only_when_it_is_synchronised():
    server = Server(LAYOUT, fedlama.FedAvg(2), rule=Momentum(0.9))
    state = server.start(row_of(1.0, 2.0))
    state = closed(server, state, (0, 1), (2.0, 4.0))  # m = 1 and 2
    assert numbers(state.slots[VELOCITY]) == [1.0, 2.0]
    # A: Δ = 0, m = 0.9; b keeps m and value
    state = closed(server, state, (0,), (2.0, 9.0), ends_cycle=False)
    assert numbers(state.slots[VELOCITY]) == pytest.approx([0.9, 2.0])
    assert numbers(state.row) == pytest.approx([2.9, 4.0])
    # B after two intervals: m = 0.81·2
    state = closed(server, state, (0, 1), (2.9, 4.0))
    assert numbers(state.slots[VELOCITY]) == pytest.approx([0.81, 1.62])
    assert numbers(state.row) == pytest.approx([3.71, 5.62])


def test_the_spread_is_around_the_clients_mean_whatever_the_server_makes_of_it():
    seen: list[Evidence] = []

    class Watching(fedlama.FedAvg):
        def observe(self, state, plan, evidence, layers):
            seen.append(evidence)
            return advance(state, plan, evidence, layers)

    server = Server(LAYOUT, Watching(2), rule=Momentum(0.0, rate=10.0))
    closed(server, server.start(row_of(1.0, 2.0)), (0, 1), (0.0, 2.0), (4.0, 2.0))
    assert seen[0].spread == {0: pytest.approx(4.0), 1: pytest.approx(0.0)}


def test_closing_a_round_leaves_the_state_before_it_as_it_was():
    downlink = Channel(Rotate(1.0), LAYOUT, seed=1, direction="downlink")
    server = Server(
        LAYOUT,
        fedlama.FedAvg(2),
        rule=Momentum(0.9),
        downlink=downlink,
        average_steps=8,
    )
    state = server.start(row_of(1.0, 2.0))
    for client in ((2.0, 4.0), (5.0, 1.0), (0.0, 3.0)):
        row = state.row.clone()
        slots = {name: slot.clone() for name, slot in state.slots.items()}
        policy = state.policy_state
        after = closed(server, state, (0, 1), client)
        assert not torch.equal(after.row, row)
        assert torch.equal(state.row, row)
        assert state.policy_state == policy
        for name, slot in slots.items():
            assert torch.equal(state.slots[name], slot), name
        state = after


# The moving average


def test_the_moving_average_by_hand():
    """After the first cycle it is the model; then e^(−steps/average_steps) of it is kept at every cycle's end."""
    server = Server(LAYOUT, fedlama.FedAvg(2), average_steps=8)
    state = closed(server, server.start(row_of(1.0, 2.0)), (0, 1), (3.0, 5.0))
    assert numbers(state.average) == [3.0, 5.0]
    # Nothing happens inside a cycle
    state = closed(server, state, (0,), (7.0, 5.0), ends_cycle=False)
    assert numbers(state.average) == [3.0, 5.0]
    state = closed(server, state, (0, 1), (8.0, 9.0))  # a cycle of four steps
    kept = math.exp(-4 / 8)
    assert numbers(state.average) == pytest.approx(
        [kept * 3 + (1 - kept) * 8, kept * 5 + (1 - kept) * 9]
    )
    assert numbers(state.row) == [8.0, 9.0]  # training goes on from the model itself


def test_the_average_changes_what_is_evaluated_and_nothing_else():
    plain = run()
    averaged = run(evaluate="ema", average_steps=30)
    assert not torch.equal(weights(plain), weights(averaged))
    for one, other in zip(plain.records, averaged.records, strict=True):
        assert (one.loss, one.discrepancy, one.due) == (
            other.loss,
            other.discrepancy,
            other.due,
        )
        assert (one.uplink_bytes, one.downlink_bytes) == (
            other.uplink_bytes,
            other.downlink_bytes,
        )


def test_the_average_beside_the_model_changes_nothing_and_is_what_ema_would_give():
    plain = run()
    averaged = run(evaluate="ema", average_steps=30)
    beside = run(evaluate_average=True, average_steps=30)
    torch.testing.assert_close(weights(beside), weights(plain), rtol=0, atol=0)
    assert beside.accuracy == plain.accuracy
    assert beside.average_score == averaged.accuracy
    assert beside.summary()["average_score"] == averaged.accuracy
    assert [record.average_score for record in beside.records] == [
        record.accuracy for record in averaged.records
    ]
    assert plain.average_score is None
    assert "average_score" not in plain.summary()
    assert "average_score" not in plain.records[-1].to_plain()


def test_an_average_beside_itself_is_refused():
    with pytest.raises(fedlama.InputError, match="evaluate_average has nothing to add"):
        run(evaluate="ema", evaluate_average=True)


def test_an_average_that_reaches_back_a_step_is_the_model_but_for_what_is_left_of_cycles_before():
    # Cycles of six steps: e⁻⁶ = 0.0025 of the model before
    plain = weights(run(iterations=12))
    before = weights(run(iterations=6))
    expected = math.exp(-6) * before + (1 - math.exp(-6)) * plain
    torch.testing.assert_close(
        weights(run(iterations=12, evaluate="ema", average_steps=1))[:84], expected[:84]
    )
