"""Local rules against numbers derived by hand, and what theory promises of them."""

import pytest
import torch

import fedlama
from doors.harness import run, same_bits, weights
from fedlama import SGD, FedDyn, FedNova, FedProx, InputError, Scaffold
from fedlama.local.feddyn import GRADIENT, SERVER_SUM
from fedlama.local.scaffold import CONTROL, SERVER_CONTROL


def step(rule, row, gradient, own=None, server=None, rate=0.1):
    """One step on a row of numbers; the row afterwards."""
    values = torch.tensor(row)
    rule.step(
        values,
        torch.tensor(gradient),
        own or {},
        server or {},
        rate=rate,
        kernels=torch.ones(len(row)),
    )
    return values.tolist()


# FedProx


def test_fedprox_pulls_to_the_anchor():
    # x = 3, anchor 1, g = 0.5, μ = 0.25: g + μ(x − a) = 0.5 + 0.25·2 = 1, and 3 − 0.1·1 = 2.9
    rule = FedProx(SGD(0.1, 4), 0.25)
    assert step(
        rule, [3.0], [0.5], server={"model": torch.tensor([1.0])}
    ) == pytest.approx([2.9])


def test_fedprox_pulls_before_decay_and_momentum():
    # With decay 0.1 the gradient is 1 + 0.1·3 = 1.3; the velocity 0.5·2 + 1.3 = 2.3; 3 − 0.1·2.3 = 2.77
    rule = FedProx(SGD(0.1, 4, momentum=0.5, weight_decay=0.1), 0.25)
    own = {"velocity": torch.tensor([2.0])}
    assert step(
        rule, [3.0], [0.5], own, {"model": torch.tensor([1.0])}
    ) == pytest.approx([2.77])
    assert own["velocity"].tolist() == pytest.approx([2.3])


# SCAFFOLD


def test_scaffold_corrects_by_c_minus_c_i():
    # y ← y − η(g − c_i + c) = 1 − 0.1·(2 − 0.5 + 0.25) = 0.825
    server = {"model": torch.tensor([1.0]), SERVER_CONTROL: torch.tensor([0.25])}
    assert step(
        Scaffold(SGD(0.1, 4)), [1.0], [2.0], {CONTROL: torch.tensor([0.5])}, server
    ) == pytest.approx([0.825])


def test_scaffold_c_i_becomes_the_clients_mean_gradient():
    # From anchor 1 with c_i = 0.5, c = 0.25 and gradients 2 and 3 at rate 0.1: y = 1 − 0.1·(1.75 + 2.75) = 0.55.
    # c_i⁺ = c_i − c + (a − y)/(2·0.1) = 0.25 + 2.25 = 2.5 = (2 + 3)/2
    own = {CONTROL: torch.tensor([0.5])}
    server = {"model": torch.tensor([1.0]), SERVER_CONTROL: torch.tensor([0.25])}
    Scaffold(SGD(0.1, 4)).sync(
        torch.tensor([0.55]), own, server, steps=range(4, 6), taken=torch.tensor([[2]])
    )
    assert own[CONTROL].tolist() == pytest.approx([2.5])


def test_scaffold_counts_each_steps_own_rate():
    # Warm-up over two steps: rates 0.05 and 0.1 in steps 0 and 1, Σ η = 0.15; (1 − 0.7)/0.15 = 2
    own = {CONTROL: torch.tensor([0.0])}
    server = {"model": torch.tensor([1.0]), SERVER_CONTROL: torch.tensor([0.0])}
    rule = Scaffold(SGD(0.1, 4, warmup_steps=2))
    rule.sync(
        torch.tensor([0.7]), own, server, steps=range(2), taken=torch.tensor([[2]])
    )
    assert own[CONTROL].tolist() == pytest.approx([2.0])


def test_scaffold_c_follows_the_mean_change_by_the_share_of_the_population():
    # Mean of c_i⁺ − c_i is (a − u)/(Kη) − c = (1 − 0.5)/0.2 − 0.5 = 2; 3 of 12 clients: c = 0.5 + 0.25·2 = 1
    own = {SERVER_CONTROL: torch.tensor([0.5])}
    mean = torch.tensor([0.5])
    new = Scaffold(SGD(0.1, 4)).merge(
        torch.tensor([1.0]), mean, own, steps=range(2), taken=[(1.0, 2)], share=0.25
    )
    assert new is mean
    assert own[SERVER_CONTROL].tolist() == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("base", "sentence"),
    [
        (
            SGD(0.1, 4, momentum=0.9),
            "scaffold corrects gradients, so local.momentum must be 0, not 0.9",
        ),
        (
            SGD(0.1, 4, steps=3),
            "scaffold's server control needs as many steps of every client",
        ),
    ],
)
def test_scaffold_refuses_what_its_control_cannot_hold(base, sentence):
    with pytest.raises(InputError, match=sentence):
        Scaffold(base)


# FedDyn


def test_feddyn_adds_a_linear_and_a_quadratic_term():
    # g − λ + α(x − a) = 2 − 0.5 + 0.25·(3 − 1) = 2; 3 − 0.1·2 = 2.8
    own = {GRADIENT: torch.tensor([0.5])}
    assert step(
        FedDyn(SGD(0.1, 4), 0.25), [3.0], [2.0], own, {"model": torch.tensor([1.0])}
    ) == pytest.approx([2.8])


def test_feddyn_at_a_synchronisation():
    rule = FedDyn(SGD(0.1, 4), 0.5)
    own = {GRADIENT: torch.tensor([1.0])}
    rule.sync(
        torch.tensor([3.0]),
        own,
        {"model": torch.tensor([1.0])},
        steps=range(2),
        taken=torch.tensor([[2]]),
    )
    assert own[GRADIENT].tolist() == [0.0]  # 1 − 0.5·2
    # 2 of 8 clients with a mean of 3: h = 1 − 0.5·0.25·2 = 0.75, model = 3 − 0.75/0.5 = 1.5
    held = {SERVER_SUM: torch.tensor([1.0])}
    new = rule.merge(
        torch.tensor([1.0]),
        torch.tensor([3.0]),
        held,
        steps=range(2),
        taken=[],
        share=0.25,
    )
    assert held[SERVER_SUM].tolist() == [0.75]
    assert new.tolist() == [1.5]


def test_feddyn_rests_at_the_minimum_of_the_whole():
    """At a fixed point every client stays at the anchor, its λ_i is its gradient, and the gradients add up to zero."""
    rule = FedDyn(SGD(0.1, 4), 0.5)
    # f_i(x) = (x − m_i)²/2, of which the sum has its minimum at 1.5
    minima = torch.tensor([[-2.0], [5.0]])
    model = torch.zeros(1)
    own = {GRADIENT: torch.zeros(2, 1)}
    held = {SERVER_SUM: torch.zeros(1)}
    for number in range(200):
        rows = model.repeat(2, 1)
        for _ in range(40):
            rule.step(
                rows,
                rows - minima,
                own,
                {"model": model},
                rate=0.1,
                kernels=torch.ones(1),
            )
        rule.sync(
            rows,
            own,
            {"model": model},
            steps=range(number, number + 1),
            taken=torch.tensor([[40], [40]]),
        )
        model = rule.merge(
            model, rows.mean(dim=0), held, steps=range(1), taken=[], share=1.0
        )
    assert model.tolist() == pytest.approx([1.5], abs=1e-4)
    assert own[GRADIENT].flatten().tolist() == pytest.approx([3.5, -3.5], abs=1e-3)


# FedNova


def test_fednova_averages_per_step():
    # τ = 4; clients took 2 and 6 steps to 1 + 4 and 1 + 6 from anchor 1. Per step 2 and 1, scaled to τ: 9 and 5.
    rule = FedNova(SGD(0.1, 4))
    rows = torch.tensor([[5.0], [7.0]])
    rule.sync(
        rows,
        {},
        {"model": torch.tensor([1.0])},
        steps=range(4),
        taken=torch.tensor([[2], [6]]),
    )
    assert rows.tolist() == [[9.0], [5.0]]
    # τ_eff = (2 + 6)/2 = 4, so the mean 7 stays; it is 1 + 4·(2 + 1)/2
    mean = rows.mean(dim=0)
    assert (
        rule.merge(
            torch.tensor([1.0]),
            mean,
            {},
            steps=range(4),
            taken=[(0.5, 2), (0.5, 6)],
            share=1,
        )
        is mean
    )
    # Weights ¼ and ¾: mean 6, τ_eff = 5, model = 1 + 5·5/4 = 7.25 = 1 + 5·(¼·2 + ¾·1)
    new = rule.merge(
        torch.tensor([1.0]),
        torch.tensor([6.0]),
        {},
        steps=range(4),
        taken=[(0.25, 2), (0.75, 6)],
        share=1,
    )
    assert new.tolist() == [7.25]


def test_fednova_counts_what_momentum_adds():
    # β = ½: gradients of three steps are applied 1 + ½ + ¼, 1 + ½ and 1 times, 4.25 in all
    assert float(
        FedNova(SGD(0.1, 4, momentum=0.5)).amount(torch.tensor(3))
    ) == pytest.approx(4.25)
    assert float(
        FedNova(SGD(0.1, 4, momentum=0.5)).amount(torch.tensor(1))
    ) == pytest.approx(1.0)


# What theory promises


def test_fedprox_without_a_spring_is_its_base():
    base = SGD(0.05, 4, momentum=0.5, weight_decay=0.01)
    assert same_bits(run(local=FedProx(base, 0.0)), run(local=base))


def test_fednova_with_equal_steps_is_its_base():
    assert same_bits(run(local=FedNova(SGD(0.05, 4))), run(local=SGD(0.05, 4)))
    assert same_bits(
        run(local=FedNova(SGD(0.05, 4, steps=2))), run(local=SGD(0.05, 4, steps=2))
    )
    with_momentum = SGD(0.05, 4, momentum=0.5)
    assert same_bits(run(local=FedNova(with_momentum)), run(local=with_momentum))
    # As many for everyone, but not as many as the schedule has: the factors cancel out.
    more = {"policy": fedlama.FedAvg(2), "iterations": 12, "window": 6}
    one = run(local=FedNova(SGD(0.05, 4, momentum=0.5, steps=3)), **more)
    other = run(local=SGD(0.05, 4, momentum=0.5, steps=3), **more)
    torch.testing.assert_close(weights(one), weights(other), rtol=1e-4, atol=1e-6)


def test_as_many_steps_as_the_interval_has_are_the_schedule():
    assert same_bits(run(local=SGD(0.05, 4, steps=2)), run(local=SGD(0.05, 4)))


def test_scaffold_with_all_controls_zero_is_its_base():
    """In the first interval c = c_i = 0, so the model is that of SGD; from the second on it is not."""
    first = {"iterations": 2, "policy": fedlama.FedAvg(2), "window": 2}
    assert torch.equal(
        weights(run(local=Scaffold(SGD(0.05, 4)), **first)),
        weights(run(local=SGD(0.05, 4), **first)),
    )
    second = {"iterations": 4, "policy": fedlama.FedAvg(2), "window": 4}
    other = weights(run(local=Scaffold(SGD(0.05, 4)), **second))
    assert not torch.equal(other, weights(run(local=SGD(0.05, 4), **second)))


# What the anchor of a layer is


def test_what_a_layer_refers_to_is_its_last_synchronised_value():
    """Clients and server are shown, for each layer, what it was when it was last averaged, and the steps since then."""
    # (step, size) → what became of it there
    averaged: dict[tuple[int, int], list[torch.Tensor]] = {}
    sent: list[tuple[range, torch.Tensor]] = []
    merged: list[tuple[range, torch.Tensor]] = []

    class Watched(Scaffold):
        def sync(self, row, own, server, *, steps, taken):
            sent.append((steps, server["model"].clone()))
            super().sync(row, own, server, steps=steps, taken=taken)

        def merge(self, anchor, mean, own, *, steps, taken, share):
            merged.append((steps, anchor.clone()))
            averaged.setdefault((steps.stop, len(mean)), []).append(mean.clone())
            return super().merge(
                anchor, mean, own, steps=steps, taken=taken, share=share
            )

    result = run(local=Watched(SGD(0.05, 4)))
    assert {len(steps) for steps, _ in merged} == {2, 6}  # τ' and φτ'
    assert {interval for record in result.records for interval in record.intervals} == {
        2,
        6,
    }
    for steps, anchor in [*sent, *merged]:
        if steps.start:
            before = averaged[steps.start, len(anchor)]
            assert any(torch.equal(anchor, one) for one in before)


def test_scaffold_c_i_changes_only_when_its_layer_is_synchronised():
    shown: dict[tuple[int, int], list[torch.Tensor]] = {}

    class Watched(Scaffold):
        def sync(self, row, own, server, *, steps, taken):
            super().sync(row, own, server, steps=steps, taken=taken)
            shown.setdefault((steps.stop, row.shape[1]), []).append(
                own[CONTROL].clone()
            )

    result = run(local=Watched(SGD(0.05, 4)), iterations=24)
    kernel = next(layer for layer in result.layers if layer.size == 96)
    due = [record.step for record in result.records if kernel.name in record.due]
    assert sorted(step for step, size in shown if size == 96) == due
    assert len(due) < len(result.records)


# What travels for a rule


def test_scaffold_c_is_in_the_downlink_bytes_of_every_layer_that_is_sent():
    plain = run(local=SGD(0.05, 4))
    corrected = run(local=Scaffold(SGD(0.05, 4)))
    statistics = 4 * 24  # twelve means and variances per client and round
    # Before decisions can differ
    for one, other in zip(plain.records[:3], corrected.records[:3], strict=True):
        assert one.due == other.due
        assert other.downlink_bytes - 3 * statistics == 2 * (
            one.downlink_bytes - 3 * statistics
        )
        # the server needs no upload for c
        assert other.uplink_bytes == one.uplink_bytes
    for rule in (
        FedProx(SGD(0.05, 4), 0.1),
        FedNova(SGD(0.05, 4)),
        FedDyn(SGD(0.05, 4), 0.1),
    ):
        assert run(local=rule, iterations=6, window=6).downlink_bytes == sum(
            record.downlink_bytes for record in plain.records[:3]
        )
