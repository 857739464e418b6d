"""Algorithm 1: which layers are due after how many steps, and when intervals change."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlama import FedAvg, FedLAMA, InputError
from fedlama.core import Evidence, Layout, Policy, TensorEntry, advance

A, B = 0, 1
# `a` is a kernel of 90 numbers, `b` a bias of 10: with d_a < d_b the crossing is at once at a (1−λ = .1)
LAYERS = Layout.pack([TensorEntry("a", 90, adaptive=True), TensorEntry("b", 10)]).layers


def play(policy, iterations, d=(1.0, 2.0), layers=LAYERS):
    """All rounds of a run in which every layer always shows discrepancy d: (plans, the state before each and after)."""
    states, plans = [policy.start(layers)], []
    while states[-1].step < iterations:
        state, plan = states[-1], policy.next(states[-1], iterations)
        apart = {
            layer: state.step + plan.steps - state.synchronised_at[layer]
            for layer in plan.due
        }
        spread = {
            layer: d[layer] * apart[layer] * layers[layer].size for layer in plan.due
        }
        plans.append(plan)
        states.append(policy.observe(state, plan, Evidence(spread), layers))
    return plans, states


def steps_and_due(plans):
    return [(plan.steps, plan.due) for plan in plans]


def test_fedavg_averages_everything_every_interval():
    plans, states = play(FedAvg(4), 12)
    assert steps_and_due(plans) == [(4, (A, B))] * 3
    assert all(plan.ends_cycle and plan.adjusts for plan in plans)
    assert [(state.step, state.round, state.cycle) for state in states] == [
        (0, 0, 0),
        (4, 1, 1),
        (8, 2, 2),
        (12, 3, 3),
    ]
    assert {state.intervals for state in states} == {(4, 4)}


def test_fedlama_averages_a_long_layer_at_cycle_ends_only():
    plans, states = play(FedLAMA(2, 3), 12)
    first = [(2, (A, B))] * 3  # every layer starts at the base interval
    second = [(2, (B,)), (2, (B,)), (2, (A, B))]  # a now has 6 steps
    assert steps_and_due(plans) == first + second
    assert [plan.ends_cycle for plan in plans] == [False, False, True] * 2
    assert [state.intervals for state in states] == [(2, 2)] * 3 + [(6, 2)] * 4
    assert [state.cycle for state in states] == [0, 0, 0, 1, 1, 1, 2]


def test_a_round_lasts_until_the_next_layer_falls_due():
    # One adaptive layer and nothing else: once it is long, no step in between has anything to average.
    layers = Layout.pack([TensorEntry("a", 5, adaptive=True)]).layers
    plans, _ = play(FedLAMA(2, 3), 12, d=(1.0,), layers=layers)
    assert steps_and_due(plans) == [(2, (A,))] * 3 + [(6, (A,))]


def test_a_long_layer_becomes_short_again_when_it_drifts():
    # a: n = 30, b: n = 70, both adaptive. d_a < d_b: 1−λ = .7, δ_a = 30·1/(30 + 70·d_b); never crossed at a, so both
    # are long. d_b < d_a: at b 1−λ = .3 < δ_b = 70/(70 + 30·2) = .54, so only b is.
    layers = Layout.pack(
        [TensorEntry("a", 30, adaptive=True), TensorEntry("b", 70, adaptive=True)]
    ).layers
    policy = FedLAMA(1, 2)
    state = policy.start(layers)
    intervals = []
    for d_a, d_b in [(1.0, 2.0), (2.0, 1.0), (1.0, 2.0)]:  # one pair a cycle
        while True:
            plan = policy.next(state, 6)
            apart = {
                layer: state.step + plan.steps - state.synchronised_at[layer]
                for layer in plan.due
            }
            d = {0: d_a, 1: d_b}
            spread = {
                layer: d[layer] * apart[layer] * layers[layer].size
                for layer in plan.due
            }
            state = policy.observe(state, plan, Evidence(spread), layers)
            if plan.ends_cycle:
                break
        intervals.append(state.intervals)
    assert intervals == [(2, 2), (1, 2), (2, 2)]


def test_accelerate_averages_a_drifting_layer_more_often_in_a_cycle_of_the_base_interval():
    # d_a = 10, d_b = 1: a holds 900 of 910, so 1−δ = .01 < λ = .9 and a alone is shortened to 6/3
    policy = FedLAMA(6, 3, rule="accelerate")
    assert policy.longest_cycle == 6
    plans, states = play(policy, 18, d=(10.0, 1.0))
    assert (
        steps_and_due(plans) == [(6, (A, B))] + [(2, (A,)), (2, (A,)), (2, (A, B))] * 2
    )
    assert states[-1].intervals == (2, 6)


@pytest.mark.parametrize(
    ("policy", "iterations", "steps"),
    [
        (FedAvg(4), 10, [4, 4, 2]),
        (FedLAMA(2, 3), 7, [2, 2, 2, 1]),  # inside a round of the second cycle
        (FedLAMA(2, 3), 8, [2, 2, 2, 2]),  # after a whole round of it
        (FedLAMA(2, 3), 1, [1]),
        (FedLAMA(6, 3, rule="accelerate"), 9, [6, 2, 1]),
    ],
)
def test_a_run_that_ends_inside_a_cycle_averages_everything_and_adjusts_nothing(
    policy, iterations, steps
):
    plans, states = play(policy, iterations)
    assert [plan.steps for plan in plans] == steps
    assert plans[-1].due == (A, B)
    assert plans[-1].ends_cycle
    assert not plans[-1].adjusts
    assert all(plan.adjusts == plan.ends_cycle for plan in plans[:-1])
    assert states[-1].intervals == states[-2].intervals


def test_a_cut_cycle_does_not_take_the_chance_to_adjust():
    # The first cycle would end at step 6; cut at 5, all intervals are still those of the start.
    _, states = play(FedLAMA(2, 3), 5)
    assert states[-1].intervals == (2, 2)


def test_a_run_that_ends_with_a_cycle_is_not_cut():
    plans, states = play(FedLAMA(2, 3), 6)
    assert plans[-1].adjusts
    assert states[-1].intervals == (6, 2)


@pytest.mark.parametrize(
    ("warmup_rounds", "first"), [(0, 2), (1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (8, 8)]
)
def test_the_first_adjustment_is_at_the_first_cycle_end_at_or_after_the_warmup(
    warmup_rounds, first
):
    # Cycles of two rounds: in the warm-up every round has one step, so cycles end after rounds 2, 4, 6 and 8.
    _, states = play(FedLAMA(1, 2, warmup_rounds=warmup_rounds), 12)
    assert next(state.round for state in states if state.intervals == (2, 1)) == first


@given(st.integers(1, 7), st.integers(1, 40), st.integers(0, 3))
def test_fedlama_with_factor_one_takes_the_plans_of_fedavg(
    interval, iterations, warmup_rounds
):
    plans, states = play(FedAvg(interval), iterations)
    assert play(FedLAMA(interval, 1, warmup_rounds=warmup_rounds), iterations) == (
        plans,
        states,
    )


@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 60),
    st.floats(0.01, 100),
    st.integers(0, 9),
)
def test_rounds_fill_the_run_and_every_layer_is_averaged_at_its_interval(
    base, factor, iterations, d_a, warmup
):
    plans, states = play(
        FedLAMA(base, factor, warmup_rounds=warmup), iterations, d=(d_a, 1.0)
    )
    assert sum(plan.steps for plan in plans) == states[-1].step == iterations
    assert plans[-1].due == (A, B)
    for state, plan in zip(states, plans, strict=False):
        for layer in plan.due:
            apart = state.step + plan.steps - state.synchronised_at[layer]
            assert apart == state.intervals[layer] or (
                (plan.ends_cycle and not plan.adjusts)
                and apart < state.intervals[layer]
            )


def test_the_discrepancy_is_eq_2():
    # a has 90 numbers, b 10. After two steps Σ w‖u−x‖² = 360 and 5: d = 360/(2·90) = 2, d_b = 5/(2·10) = 0.25.
    policy = FedLAMA(2, 2)
    state = policy.start(LAYERS)
    state = policy.observe(
        state, policy.next(state, 100), Evidence({A: 360.0, B: 5.0}), LAYERS
    )
    assert state.discrepancy == (2.0, 0.25)
    # The cycle's second round: d_a = 45/180 = .25, d_b = 40/20 = 2, so a is lengthened (1−λ = .1 < δ = 22.5/42.5).
    state = policy.observe(
        state, policy.next(state, 100), Evidence({A: 45.0, B: 40.0}), LAYERS
    )
    assert state.discrepancy == (0.25, 2.0)
    assert state.intervals == (4, 2)
    # Only b is due, and a keeps what it showed last.
    plan = policy.next(state, 100)
    assert plan.due == (B,)
    state = policy.observe(state, plan, Evidence({B: 10.0}), LAYERS)
    assert state.discrepancy == (0.25, 0.5)
    # Now a has gone four steps: 720/(4·90) = 2.
    state = policy.observe(
        state, policy.next(state, 100), Evidence({A: 720.0, B: 10.0}), LAYERS
    )
    assert state.discrepancy == (2.0, 0.5)


def test_a_cut_interval_is_measured_over_the_steps_it_had():
    # Cut after 3 of 4 steps: d_a = 270/(3·90) = 1.
    policy = FedAvg(4)
    state = policy.start(LAYERS)
    state = policy.observe(
        state, policy.next(state, 3), Evidence({A: 270.0, B: 60.0}), LAYERS
    )
    assert state.discrepancy == (1.0, 2.0)


def test_a_cycle_without_any_discrepancy_keeps_the_intervals():
    policy = FedLAMA(1, 2)
    _, states = play(policy, 2)
    assert states[-1].intervals == (2, 1)
    state = states[-1]
    for _ in range(2):
        plan = policy.next(state, 100)
        state = policy.observe(
            state, plan, Evidence(dict.fromkeys(plan.due, 0.0)), LAYERS
        )
    assert state.discrepancy == (0.0, 0.0)
    assert state.intervals == (2, 1)


def test_policies_are_values():
    assert FedLAMA(6, 4) == FedLAMA(6, 4) != FedLAMA(6, 2)
    assert hash(FedAvg(6)) == hash(FedAvg(6))
    assert (str(FedAvg(6)), str(FedLAMA(6, 4))) == ("FedAvg(6)", "FedLAMA(6, 4)")
    assert isinstance(FedAvg(6), Policy)


def test_fedavg_is_fedlama_with_factor_one():
    assert FedLAMA(6, 1) == FedAvg(6) != FedLAMA(6, 2)
    assert hash(FedLAMA(6, 1)) == hash(FedAvg(6))
    # Where nothing is ever made longer, it does not matter which rule chose what, nor from when on
    assert FedLAMA(6, 1, "released", 3) == FedAvg(6)
    assert hash(FedLAMA(6, 1, "released", 3)) == hash(FedAvg(6))


def test_a_class_derived_from_a_policy_equals_only_its_own_kind():
    class Watching(FedLAMA):
        def observe(self, state, plan, evidence, layers):
            return advance(state, plan, evidence, layers)

    @dataclasses.dataclass(frozen=True, eq=False)
    class Damped(FedLAMA):
        factor: float = 0.5

    class Counting(FedAvg):
        pass

    for policy, other in [
        (FedLAMA(6, 4), Watching(6, 4)),
        (FedLAMA(6, 4), Damped(6, 4)),
        (FedLAMA(6, 1), Watching(6, 1)),
        (FedAvg(6), Watching(6, 1)),
        (FedAvg(6), Counting(6)),
        (Watching(6, 4), Damped(6, 4)),
        (Damped(6, 4), Damped(6, 4, factor=0.1)),
    ]:
        assert policy != other
        assert other != policy
    assert Watching(6, 4) == Watching(6, 4) != Watching(6, 2)
    assert Damped(6, 4, factor=0.1) == Damped(6, 4, factor=0.1)
    assert hash(Damped(6, 4)) == hash(Damped(6, 4))


def test_fedavg_is_known_by_its_factor_whatever_it_is_called():
    for policy in (FedAvg(6), FedLAMA(6, 1), FedLAMA(6, 1, "released", 3)):
        assert policy.is_fedavg
    assert not FedLAMA(6, 2).is_fedavg


def test_an_interval_that_is_given_twice_is_refused():
    with pytest.raises(TypeError, match="multiple values for argument 'interval'"):
        FedAvg(6, base_interval=12)
    with pytest.raises(TypeError, match="needs an interval"):
        FedAvg()


def test_what_a_policy_prints_makes_it_again():
    # One option is left of FedAvg, by the field's name: the constructor takes no other
    assert repr(FedAvg(6)) == "FedAvg(base_interval=6)"
    for policy in (FedAvg(6), FedLAMA(6, 4), FedLAMA(6, 2, "released", 3)):
        names = {"FedAvg": FedAvg, "FedLAMA": FedLAMA}
        again = eval(repr(policy), names)
        assert again == policy
        assert type(again) is type(policy)


def test_policies_can_be_replaced():
    assert dataclasses.replace(FedAvg(6), base_interval=12) == FedAvg(12)
    assert dataclasses.replace(FedLAMA(6, 4), increase_factor=2) == FedLAMA(6, 2)
    assert str(dataclasses.replace(FedAvg(6), base_interval=12)) == "FedAvg(12)"


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: FedAvg(0), "base_interval must be at least 1, not 0"),
        (lambda: FedLAMA(6, 0), "increase_factor must be at least 1, not 0"),
        (lambda: FedLAMA(6, 1.5), "increase_factor must be a whole number, not 1.5"),
        (lambda: FedLAMA(6, 2, rule="lengthen"), "rule must be one of"),
        (lambda: FedLAMA(6, 4, rule="accelerate"), "must divide base_interval"),
        (
            lambda: FedLAMA(6, 2, warmup_rounds=-1),
            "warmup_rounds must be at least 0, not -1",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(build, sentence):
    with pytest.raises(InputError, match=sentence):
        build()
