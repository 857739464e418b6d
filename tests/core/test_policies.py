"""Budget, FedLUAR, FedPart and Fixed: what they plan, with numbers worked out by hand."""

import dataclasses
import itertools
import json
import math
import pickle
import random
from collections import Counter
from copy import deepcopy
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlama import Budget, FedAvg, FedLAMA, FedLUAR, FedPart, Fixed, InputError
from fedlama.core import (
    RECYCLED,
    Evidence,
    Layout,
    Policy,
    PolicyState,
    Shortening,
    TensorEntry,
    shortest_interval,
)
from fedlama.core.policies.offers import best_intervals, offers_of

A, B, C = 0, 1, 2
THREE = Layout.pack(
    [
        TensorEntry("conv.weight", 60, adaptive=True),
        TensorEntry("fc.weight", 30, adaptive=True),
        TensorEntry("fc.bias", 10),
    ]
).layers


def play(
    policy,
    iterations,
    layers=THREE,
    d=(1.0, 1.0, 1.0),
    moved=(1.0, 1.0, 1.0),
    norm=(1.0, 1.0, 1.0),
    clients=2,
):
    """All rounds of a run in which every layer always shows the same: (plans, the state before each and after)."""
    states, plans = [policy.start(layers)], []
    while states[-1].step < iterations:
        # As a checkpoint does it
        state = PolicyState.from_plain(
            json.loads(json.dumps(dataclasses.asdict(states[-1])))
        )
        assert state == states[-1]
        plan = policy.next(state, iterations)
        end = state.step + plan.steps
        evidence = Evidence(
            spread={
                layer: d[layer]
                * (end - state.synchronised_at[layer])
                * layers[layer].size
                for layer in plan.due
            },
            moved={layer: moved[layer] for layer in plan.due},
            norm={layer: norm[layer] for layer in plan.due},
            sent={layer: 4 * layers[layer].size * clients for layer in plan.due},
            clients=clients,
        )
        plans.append(plan)
        states.append(policy.observe(state, plan, evidence, layers))
    assert states[-1].step == iterations
    assert plans[-1].ends_cycle
    return plans, states


def steps_and_due(plans):
    return [(plan.steps, plan.due) for plan in plans]


@pytest.mark.parametrize(
    "policy",
    [
        Budget(2, 8, 0.5),
        FedLUAR(2, 1),
        FedPart(2),
        Fixed(2, {"fc.*": 4}),
        Budget(2, 8, 0.5, staggered=True),
    ],
)
def test_they_are_policies_and_values(policy):
    assert isinstance(policy, Policy)
    assert policy == dataclasses.replace(policy)
    assert hash(policy) == hash(dataclasses.replace(policy))
    assert policy != FedAvg(2)
    assert type(policy).__name__ in str(policy)
    plans, _ = play(policy, 50)
    assert sum(plan.steps for plan in plans) == 50


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        (FedAvg(6), 6),
        (FedLAMA(6, 3), 6),
        (FedLAMA(6, 3, "accelerate"), 2),
        (Budget(2, 8, 0.5), 2),
        (FedPart(3), 3),
    ],
    ids=str,
)
def test_the_shortest_interval(policy, steps):
    assert shortest_interval(policy) == steps


def test_a_policy_need_not_know_its_shortest_interval():
    policy = Fixed(4, {"fc.*": 8})
    assert isinstance(policy, Policy)
    assert not isinstance(policy, Shortening)
    assert shortest_interval(policy) == 4


# Fixed


def test_fixed_intervals_are_those_of_the_first_pattern_that_matches():
    policy = Fixed(2, {"fc.b*": 4, "*c.*": 6})
    assert policy.longest_cycle == 12
    assert policy.start(THREE).intervals == (2, 6, 4)
    plans, states = play(policy, 12)
    expected = [
        (2, (A,)),
        (2, (A, C)),
        (2, (A, B)),
        (2, (A, C)),
        (2, (A,)),
        (2, (A, B, C)),
    ]
    assert steps_and_due(plans) == expected
    assert [plan.ends_cycle for plan in plans] == [False] * 5 + [True]
    assert {state.intervals for state in states} == {(2, 6, 4)}
    assert str(policy) == "Fixed(2, fc.b*: 4, *c.*: 6)"
    assert str(Fixed(6, {})) == "Fixed(6)"


def test_fixed_intervals_cannot_be_changed():
    given_table = {"fc.b*": 4}
    policy = Fixed(2, given_table)
    with pytest.raises(TypeError):
        policy.intervals["x"] = 5
    given_table["x"] = 5
    assert policy == Fixed(2, {"fc.b*": 4}) != Fixed(2, {"fc.b*": 6})
    assert policy.intervals == {"fc.b*": 4}
    assert hash(policy) == hash(Fixed(2, {"fc.b*": 4}))
    assert repr(policy) == "Fixed(base_interval=2, intervals={'fc.b*': 4})"
    assert (
        pickle.loads(pickle.dumps(policy))
        == deepcopy(policy)
        == dataclasses.replace(policy)
        == policy
    )


@given(st.integers(1, 5), st.integers(1, 40))
def test_fixed_without_patterns_is_fedavg(interval, iterations):
    assert play(Fixed(interval, {}), iterations) == play(FedAvg(interval), iterations)


def test_a_pattern_that_matches_nothing_is_refused():
    with pytest.raises(
        InputError,
        match=r"pattern 'conv2\.\*' matches no layer; layers are conv\.weight, fc\.weight",
    ):
        Fixed(2, {"conv2.*": 4}).start(THREE)


@pytest.mark.parametrize("first", ["nope", "conv?.*"])
def test_also_the_first_pattern_of_a_group_must_match_something(first):
    # Layers before the first match go with the first group: that gave it some without a match
    names = "conv.weight, fc.weight, fc.bias"
    with pytest.raises(InputError) as caught:
        FedPart(6, (first, "fc*")).start(THREE)
    assert str(caught.value) == (
        f"policy.groups: pattern {first!r} matches no layer; layers are {names}"
    )


@pytest.mark.parametrize(
    ("policy", "option"),
    [
        # Of no layer's own, it made the cycle 24 steps long all the same
        (Fixed(6, {"*": 12, "fc*": 24}), "policy.intervals"),
        (FedPart(6, ("*", "fc*")), "policy.groups"),
    ],
)
def test_a_pattern_that_others_leave_without_a_layer_is_refused(policy, option):
    with pytest.raises(InputError) as caught:
        policy.start(THREE)
    assert str(caught.value).startswith(
        f"{option}: pattern 'fc*' is left without a layer by the patterns before it; layers are "
    )


def test_groups_are_counted_in_the_name():
    assert str(FedPart(6)) == "FedPart(6)"
    assert str(FedPart(6, 1)) == str(FedPart(6, ("*",))) == "FedPart(6, 1 group)"
    assert str(FedPart(6, 2)) == "FedPart(6, 2 groups)"


# Budget


def test_the_ladder_doubles_up_to_the_cycle():
    assert Budget(6, 48, 0.5).ladder == (6, 12, 24, 48)
    assert Budget(6, 36, 0.5).ladder == (6, 12, 36)
    assert Budget(6, 6, 1.0).ladder == (6,)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, 2), (0.99, 4), (0.55, 4), (0.5, 8), (0.33, 8), (0.325, 8)],
)
def test_before_anything_is_measured_the_adaptive_layers_have_one_interval_that_fits(
    share, expected
):
    # The bias, 10 of 100, always costs 0.1. With 4 steps the others cost 0.45, altogether 0.55; with 8 steps 0.325.
    assert Budget(2, 8, share).start(THREE).intervals == (expected, expected, 2)


def test_the_budget_is_spent_where_a_byte_saves_most_drift():
    # d = 4, 1, 1: n·d = 240 and 30 per step; the bias stays at 2. In bytes per τ' = 2 steps, 400 is FedAvg, and 0.6 of
    # it is 240. Longest first: 240·¼ + 120·¼ + 40 = 130 are spent, 110 are left.
    # a 8 → 4 saves 240·4 = 960 for 60, that is 16 per byte; b 8 → 4 saves 30·4 = 120 for 30, that is 4.
    # a 4 → 2 saves 480 for 120: 4, too, but the longer interval comes first: b 8 → 4.
    # 110 − 60 − 30 = 20 are left: too little for a (120) and for b 4 → 2 (60).
    policy = Budget(2, 8, 0.6)
    _, states = play(policy, 16, d=(4.0, 1.0, 1.0))
    assert states[-1].intervals == (4, 4, 2)
    # With 0.9, 360: 230 are left at first, 140 after these two, 20 after a 4 → 2.
    _, states = play(Budget(2, 8, 0.9), 16, d=(4.0, 1.0, 1.0))
    assert states[-1].intervals == (2, 4, 2)
    # Where a hardly drifts: b 8 → 4 saves 120 for 30 (4), b 4 → 2 60 for 60 (1), a 8 → 4 2.4 for 60.
    _, states = play(Budget(2, 8, 0.6), 16, d=(0.01, 1.0, 1.0))
    assert states[-1].intervals == (8, 2, 2)


def test_relative_drift_counts_a_layer_by_its_own_norm():
    # h = n/‖x‖²: a 60/6000 = 0.01, b 30/30 = 1. What was worth 16 and 4 per byte is now worth 0.16 and 4.
    norm = (6000.0, 30.0, 1.0)
    _, states = play(
        Budget(2, 8, 0.6, drift="relative"), 16, d=(4.0, 1.0, 1.0), norm=norm
    )
    assert states[-1].intervals == (8, 2, 2)
    assert Budget(2, 8, 0.6, drift="relative").uses == ("sent", "norm")
    assert Budget(2, 8, 0.6).uses == ("sent",)


def test_a_layer_is_charged_what_it_sends():
    # a's code makes it a hundredth: 2.4 bytes beside 120 and 40. FedAvg is 162.4, 0.6 of it 97.44. At first
    # 0.6 + 30 + 40 are spent and 26.84 left: b 8 → 4 (30) is too dear, a 8 → 4 → 2 costs 0.6 + 1.2.
    policy = Budget(2, 8, 0.6)
    state = policy.start(THREE)
    while state.step < 8:
        plan = policy.next(state, 100)
        # Of five clients
        sent = {layer: {A: 12, B: 600, C: 200}[layer] for layer in plan.due}
        spread = {layer: 1.0 * plan.steps * THREE[layer].size for layer in plan.due}
        state = policy.observe(
            state, plan, Evidence(spread, sent=sent, clients=5), THREE
        )
    assert state.own["bytes"] == [2.4, 120.0, 40.0]
    assert state.intervals == (2, 8, 2)


def test_without_any_drift_the_intervals_stay():
    _, states = play(Budget(2, 8, 0.6), 24, d=(0.0, 0.0, 0.0))
    assert {state.intervals for state in states} == {(4, 4, 2)}


def test_a_cut_cycle_does_not_take_the_chance_to_choose():
    _, states = play(Budget(2, 8, 0.9), 7, d=(4.0, 1.0, 1.0))
    assert states[-1].intervals == (4, 4, 2)


def bytes_of(plans, layers):
    return sum(4 * layers[layer].size for plan in plans for layer in plan.due)


DISCREPANCIES = st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=3).map(tuple)


@given(st.floats(0.33, 1.0), DISCREPANCIES, st.booleans())
def test_a_run_of_whole_cycles_never_spends_more_than_its_share(share, d, staggered):
    # 0.325 is what the longest intervals cost, the bias at τ' included.
    plans, _ = play(Budget(2, 8, share, staggered=staggered), 32, d=d)
    assert bytes_of(plans, THREE) <= share * 16 * 400 + 1e-6


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.floats(0.01, 100)), min_size=1, max_size=4
    ),
    st.floats(0.25, 1.0),
)
def test_neither_one_interval_for_all_nor_one_more_purchase_is_better(
    layers_and_drift, share
):
    """What anybody would try by hand."""
    sizes = [size for size, _ in layers_and_drift]
    d = tuple(drift for _, drift in layers_and_drift)
    layers = Layout.pack(
        [
            TensorEntry(str(index), size, adaptive=True)
            for index, size in enumerate(sizes)
        ]
    ).layers
    policy = Budget(1, 4, share)
    ones = (1.0,) * len(d)
    _, states = play(policy, 4, layers=layers, d=d, moved=ones, norm=ones)
    chosen = states[-1].intervals

    def cost(intervals):
        return sum(
            Fraction(size, interval)
            for size, interval in zip(sizes, intervals, strict=True)
        )

    def drift(intervals):
        together = zip(sizes, states[-1].discrepancy, intervals, strict=True)
        return sum(
            size * Fraction(value) * interval for size, value, interval in together
        )

    assert cost(chosen) <= Fraction(share) * sum(sizes) or set(chosen) == {4}
    # Never worse than a FedAvg that may be spent
    for interval in (1, 2, 4):
        uniform = (interval,) * len(d)
        if cost(uniform) <= Fraction(share) * sum(sizes):
            assert drift(chosen) <= drift(uniform)
    # No single layer can be averaged more often for what is left
    left = Fraction(share) * sum(sizes) - cost(chosen)
    for index, interval in enumerate(chosen):
        if interval > 1:
            more_often = Fraction(sizes[index], interval)
            assert more_often > left


def best_of_all(sizes, weights, share):
    """The naive twin: the least drift of all combinations of 6, 12 and 24 steps within a share of FedAvg(6)'s bytes."""
    least = math.inf
    for intervals in itertools.product((6, 12, 24), repeat=len(sizes)):
        pairs = zip(sizes, weights, intervals, strict=True)
        bytes_sent, drift = 0, 0
        for size, weight, interval in pairs:
            bytes_sent += Fraction(6 * size, interval)
            drift += weight * interval
        if bytes_sent <= Fraction(share) * sum(sizes):
            least = min(least, drift)
    return least


def chosen_drift(sizes, weights, share):
    offers = []
    for index, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        offers += offers_of(index, (6, 12, 24), 6, weight=weight, cost=size)
    left = Fraction(share) * sum(sizes) - Fraction(sum(sizes), 4)
    intervals = best_intervals(offers, [24] * len(sizes), left)
    return sum(w * t for w, t in zip(weights, intervals, strict=True))


def test_a_large_layer_is_not_priced_out_by_small_ones():
    # The best offers are the small layers', down to 6 steps. The large one needs a quarter of its bytes more to go to
    # 12, and too little is left: (24, 6, 6) for 28 %, where (12, 12, 12) is exactly 50 %.
    sizes = [15868, 350, 411]
    d = (9.2e-4, 2.9e-4, 4.7e-3)
    layers = Layout.pack(
        [
            TensorEntry(name, size, adaptive=True)
            for name, size in zip("abc", sizes, strict=True)
        ]
    ).layers
    _, states = play(Budget(6, 24, 0.5), 24, layers=layers, d=d)
    assert states[-1].intervals == (12, 12, 12)


def test_one_interval_for_all_is_one_of_the_plans():
    # All at 12 steps are exactly half of the bytes and drift 30 · 12 = 360. With one layer fixed and the best offers
    # for the others it is (12, 6, 24, 6): 120 + 60 + 168 + 18 = 366.
    weights = [Fraction(weight) for weight in (10, 10, 7, 3)]
    assert chosen_drift([12, 2, 11, 1], weights, 0.5) == 360


def test_what_is_chosen_is_the_best_that_fits_for_a_few_layers():
    draw = random.Random(0)
    for _ in range(150):
        count = draw.choice((3, 4, 5))
        sizes = [int(10 ** draw.uniform(2, 5)) for _ in range(count)]
        weights = [
            Fraction(size) * Fraction(10 ** draw.uniform(-5, -2)) for size in sizes
        ]
        share = draw.choice((0.3, 0.4, 0.5, 0.6, 0.75))
        best = best_of_all(sizes, weights, share)
        # The best offers first, and no more: up to 1.9 times as much in 400 such models
        assert chosen_drift(sizes, weights, share) == best


def test_staggered_layers_take_turns_and_are_averaged_as_often():
    # Four kernels of interval 4 in a cycle of 8 steps, τ' = 1: each is averaged once inside the cycle and at its end,
    # and the shifts 0, 1, −1, 2 make that after 4, 5, 3 and 6 steps.
    tensors = [TensorEntry(name, 10, adaptive=True) for name in "abcd"]
    layers = Layout.pack(tensors).layers
    policy = Budget(1, 8, 0.25, staggered=True)
    assert policy.shifts((4, 4, 4, 4, 4)) == [0, 1, -1, 2, 0]
    assert policy.shifts((2, 1, 2, 2, 8)) == [0, 0, 1, 0, 0]
    ones = (1.0,) * 4
    plans, _ = play(policy, 8, layers=layers, d=ones, moved=ones, norm=ones)
    assert steps_and_due(plans) == [
        (3, (2,)),
        (1, (0,)),
        (1, (1,)),
        (1, (3,)),
        (2, (0, 1, 2, 3)),
    ]
    assert [plan.ends_cycle for plan in plans] == [False] * 4 + [True]
    cut, _ = play(policy, 5, layers=layers, d=ones, moved=ones, norm=ones)
    assert steps_and_due(cut) == [(3, (2,)), (1, (0,)), (1, (0, 1, 2, 3))]
    assert not cut[-1].adjusts


# Powers of two: what is measured over other steps is the same to the last bit.
EXACT = st.lists(
    st.integers(-20, 20).map(lambda power: 2.0**power), min_size=3, max_size=3
).map(tuple)


@given(st.floats(0.33, 1.0), EXACT, st.integers(1, 5))
def test_staggering_changes_when_layers_are_averaged_and_not_how_often(
    share, d, cycles
):
    plans, states = play(Budget(1, 8, share), 8 * cycles, d=d)
    shifted, turns = play(Budget(1, 8, share, staggered=True), 8 * cycles, d=d)
    assert {state.intervals for state in states} == {state.intervals for state in turns}
    counts = [
        Counter(layer for plan in some for layer in plan.due)
        for some in (plans, shifted)
    ]
    assert counts[0] == counts[1]


@given(
    st.sampled_from([(2, 8), (2, 12), (3, 3), (5, 20)]),
    st.floats(0.5, 1.0),
    DISCREPANCIES,
    st.booleans(),
)
def test_every_layer_is_averaged_at_every_end_of_a_cycle(
    lengths, fraction, d, staggered
):
    base_interval, cycle = lengths
    share = max(fraction, base_interval / cycle)
    policy = Budget(base_interval, cycle, share, staggered=staggered)
    plans, _ = play(policy, 4 * cycle, d=d)
    ends: list[int] = []
    step = 0
    for plan in plans:
        step += plan.steps
        if plan.ends_cycle:
            ends.append(step)
            assert plan.due == (A, B, C)
    assert ends == [cycle, 2 * cycle, 3 * cycle, 4 * cycle]


# FedLUAR


def test_fedluar_recycles_after_its_first_round():
    plans, states = play(FedLUAR(3, 1), 12)
    assert plans[0].due == (A, B, C)
    assert plans[0].recycled == ()
    for plan, state in zip(plans[1:], states[1:], strict=False):
        assert plan.steps == 3
        assert plan.ends_cycle
        assert len(plan.recycled) == 1
        assert set(plan.recycled) <= {A, B}  # the bias is no kernel
        assert sorted(plan.due + plan.recycled) == [A, B, C] == list(plan.renewed)
        assert state.synchronised_at == (state.step,) * 3
    assert RECYCLED in FedLUAR(3, 1).uses


def test_scores_are_those_of_the_last_average():
    # s = ‖Δ‖/(‖x‖ + 1e-6): 2/(4 + 1e-6); a layer that is recycled keeps its score.
    policy = FedLUAR(1, 1)
    state = policy.start(THREE)
    ones = dict.fromkeys((A, B, C), 1.0)
    sixteens = dict.fromkeys((A, B, C), 16.0)
    moved = {A: 4.0, B: 0.0, C: 1.0}
    state = policy.observe(
        state, policy.next(state, 9), Evidence(ones, moved, sixteens), THREE
    )
    assert state.own["scores"] == [2 / (4 + 1e-6), 0.0, 1 / (4 + 1e-6)]
    assert state.own["recycled"] == [B]  # one that does not move is always drawn
    plan = policy.next(state, 9)
    evidence = Evidence({A: 1.0, C: 1.0}, {A: 9.0, C: 1.0}, {A: 16.0, C: 16.0})
    state = policy.observe(state, plan, evidence, THREE)
    assert state.own["scores"] == [3 / (4 + 1e-6), 0.0, 1 / (4 + 1e-6)]


def test_layers_are_drawn_in_proportion_to_one_over_their_score():
    # Scores 1, 2 and 4: p ∝ 4 : 2 : 1. Two without replacement, the pairs by hand: P(12) = 4/7·2/3 + 2/7·4/5 = .6095,
    # P(13) = 4/7·1/3 + 1/7·4/6 = .2857, P(23) = 2/7·1/5 + 1/7·2/6 = .1048.
    layers = Layout.pack([TensorEntry(name, 1, adaptive=True) for name in "abc"]).layers
    policy = FedLUAR(1, 2)
    ones = dict.fromkeys(range(3), 1.0)
    drawn = Counter()
    start = policy.start(layers)
    for round_ in range(4000):
        state = dataclasses.replace(start, round=round_)
        evidence = Evidence(ones, {0: 1.0, 1: 4.0, 2: 16.0}, ones)
        drawn[
            tuple(
                policy.observe(state, policy.next(state, 9), evidence, layers).own[
                    "recycled"
                ]
            )
        ] += 1
    for pair, probability in {(0, 1): 0.6095, (0, 2): 0.2857, (1, 2): 0.1048}.items():
        sigma = math.sqrt(probability * (1 - probability) / 4000)
        assert drawn[pair] / 4000 == pytest.approx(probability, abs=4 * sigma)


def test_another_seed_draws_others():
    sequences = {
        seed: [plan.recycled for plan in play(FedLUAR(1, 1, seed=seed), 30)[0]]
        for seed in (0, 1)
    }
    assert sequences[0] != sequences[1]
    assert sequences[0] == [plan.recycled for plan in play(FedLUAR(1, 1), 30)[0]]


def test_fedluar_that_recycles_nothing_plans_as_fedavg():
    plans, _ = play(FedLUAR(3, 0), 11)
    assert steps_and_due(plans) == steps_and_due(play(FedAvg(3), 11)[0])


def test_at_least_one_kernel_must_be_averaged():
    with pytest.raises(
        InputError,
        match=r"policy\.recycled = 2 must be less than the number of adaptive layers, 2",
    ):
        FedLUAR(1, 2).start(THREE)


# FedPart


def test_fedpart_trains_everything_then_group_by_group_and_begins_again():
    plans, states = play(FedPart(3, full_rounds=2, group_rounds=2), 3 * 8)
    everything = (A, B, C)
    groups = [(A,), (A,), (B, C), (B, C)]
    assert [plan.due for plan in plans] == [everything] * 2 + groups + [everything] * 2
    assert [plan.trained for plan in plans] == [None] * 2 + groups + [None] * 2
    assert all(plan.ends_cycle and plan.steps == 3 for plan in plans)
    # Nothing drifts while it is frozen: d = 1 although a was last averaged 6 steps before.
    assert states[-1].discrepancy == (1.0, 1.0, 1.0)
    assert states[-2].synchronised_at == (states[-2].step,) * 3


def test_the_published_schedule_sends_28_percent():
    # 10 groups of the same size, 5 full rounds, 2 rounds a group: (5 + 20/10) / 25.
    layers = Layout.pack(
        [TensorEntry(str(index), 7, adaptive=True) for index in range(10)]
    ).layers
    ones = (1.0,) * 10
    plans, _ = play(FedPart(1), 25, layers=layers, d=ones, moved=ones, norm=ones)
    assert bytes_of(plans, layers) == 7 * 280  # 28 % of 25 · 280


def test_groups_by_number_and_by_pattern():
    names = ["stem", "bn", "a.weight", "a.bias", "b.weight", "b.bias", "c.weight"]
    tensors = [
        TensorEntry(name, 1, adaptive=name == "stem" or "weight" in name)
        for name in names
    ]
    layers = Layout.pack(tensors).layers
    assert FedPart(1).members(layers) == [[0, 1], [2, 3], [4, 5], [6]]
    assert FedPart(1, groups=2).members(layers) == [[0, 1, 2, 3], [4, 5, 6]]
    # ⌊3k/4⌋ = 0, 0, 1, 2
    assert FedPart(1, groups=3).members(layers) == [[0, 1, 2, 3], [4, 5], [6]]
    assert FedPart(1, groups=("c*", "a*", "*")).members(layers) == [
        [6],
        [2, 3],
        [0, 1, 4, 5],
    ]
    assert FedPart(1, groups=("stem", "c*")).members(layers) == [
        [0, 1, 2, 3, 4, 5],
        [6],
    ]
    with pytest.raises(
        InputError, match=r"policy\.groups: pattern 'd\*' matches no layer"
    ):
        FedPart(1, groups=("*", "d*")).members(layers)
    with pytest.raises(
        InputError,
        match=r"policy\.groups must be at most the number of adaptive layers, 4, not 5",
    ):
        FedPart(1, groups=5).members(layers)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: Fixed(6, {"a": 7}),
            "intervals of 'a' must be a multiple of base_interval = 6, not 7",
        ),
        (lambda: Fixed(6, {"a": 0}), "intervals of 'a' must be at least 1, not 0"),
        (
            lambda: Fixed(6, 12),
            "intervals must be a table of pattern → interval, not 12",
        ),
        (lambda: Fixed(0, {}), "base_interval must be at least 1, not 0"),
        (
            lambda: Fixed(1, {"a": 999999, "b": 999998}),
            "intervals have a common multiple of at most",
        ),
        (
            lambda: Budget(6, 20, 0.5),
            "cycle must be a multiple of base_interval = 6, not 20",
        ),
        (
            lambda: Budget(6, 24, 0.2),
            "share must be at least base_interval / cycle = 0.25, not 0.2",
        ),
        (lambda: Budget(6, 24, 1.5), "share must be above 0 and at most 1, not 1.5"),
        (
            lambda: Budget(6, 24, 0.5, drift="own"),
            "drift must be one of plain, relative, not 'own'",
        ),
        (lambda: FedLUAR(0, 1), "interval must be at least 1, not 0"),
        (lambda: FedLUAR(6, -1), "recycled must be at least 0, not -1"),
        (lambda: FedPart(6, groups=0), "groups must be at least 1, not 0"),
        (lambda: FedPart(6, groups=()), "groups must have at least one pattern"),
        (
            lambda: FedPart(6, groups="conv*"),
            "groups must be a list of patterns or a number of groups, not 'conv",
        ),
        (lambda: FedPart(6, group_rounds=0), "group_rounds must be at least 1, not 0"),
        # Of another type: these trained, or failed later without a sentence
        (
            lambda: FedPart(6, (1,)),
            "groups must have patterns of layers' names, which are texts, not 1",
        ),
        (
            lambda: FedPart(6, 2.5),
            "groups must be a list of patterns or a number of groups, not 2.5",
        ),
        (lambda: FedPart(6, True), "groups must be a whole number, not True"),
        (lambda: Fixed(6, {1: 6}), "a key of intervals must be a text, not 1"),
        (
            lambda: Budget(6, 24, 0.5, staggered=1),
            "staggered must be True or False, not 1",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(build, sentence):
    with pytest.raises(
        InputError, match=sentence.replace("(", r"\(").replace("*", r"\*")
    ):
        build()
