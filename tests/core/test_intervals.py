"""Algorithm 2: `adjust_intervals` against an exact twin, its properties, and cases worked by hand."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlama import InputError, adjust_intervals
from fedlama.core import VARIANTS, crossing_curves

TAU, PHI = 6, 3  # 'accelerate' needs the factor to divide the base interval


def adjust(d, sizes, **options):
    return adjust_intervals(
        d, sizes, **{"base_interval": TAU, "increase_factor": PHI, **options}
    )


# -- the twin: which layers change, from the definition of each rule, as a search over prefixes


def changed_by_definition(d, sizes, adaptive, rule):
    """Every prefix of the sorted layers is looked at on its own: no running sums, no early end."""
    mass = [Fraction(value) * size for value, size in zip(d, sizes, strict=True)]
    layers = range(len(d))
    walked = (
        [layer for layer in layers if adaptive[layer]]
        if rule != "printed"
        else list(layers)
    )
    sign = -1 if rule == "accelerate" else 1
    walked.sort(key=lambda layer: (sign * Fraction(d[layer]), layer))
    counted = [layer for layer in layers if adaptive[layer] or rule != "released"]

    def delta(k):
        return sum((mass[layer] for layer in walked[: k + 1]), Fraction(0)) / sum(mass)

    def lam(k):
        return Fraction(
            sum(sizes[layer] for layer in walked[: k + 1]),
            sum(sizes[layer] for layer in counted),
        )

    if rule == "printed":
        return {
            layer
            for k, layer in enumerate(walked)
            if adaptive[layer] and delta(k) < lam(k)
        }
    if rule == "accelerate":
        crossed = [k for k in range(len(walked)) if 1 - delta(k) < lam(k)]
    else:
        crossed = [k for k in range(len(walked)) if 1 - lam(k) < delta(k)]
    return set(walked[: crossed[0] + 1] if crossed else walked)


def intervals_by_definition(d, sizes, adaptive, rule):
    changed = changed_by_definition(d, sizes, adaptive, rule)
    other = TAU // PHI if rule == "accelerate" else TAU * PHI
    return [other if layer in changed else TAU for layer in range(len(d))]


rules = st.sampled_from(VARIANTS)


def moved(entries):
    """Not all at zero discrepancy, where nothing is decided."""
    return any(d for d, _, _ in entries)


# Subnormal ones and 1e308 as well
any_d = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
few_d = st.integers(0, 4).map(float)  # many ties
sizes_ = st.one_of(st.integers(1, 9), st.integers(1, 10**9))


def layers(d):
    return st.lists(st.tuples(d, sizes_, st.booleans()), min_size=1, max_size=8)


all_kinds = st.one_of(layers(any_d), layers(few_d), layers(st.one_of(any_d, few_d)))
distinct = st.lists(
    st.tuples(any_d, sizes_, st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda entry: entry[0],
).filter(moved)


def columns(entries):
    d, sizes, adaptive = zip(*entries, strict=True)
    return list(d), list(sizes), list(adaptive)


@given(all_kinds.filter(moved), rules)
def test_every_rule_does_what_its_definition_says(entries, rule):
    d, sizes, adaptive = columns(entries)
    assert adjust(d, sizes, adaptive=adaptive, rule=rule) == intervals_by_definition(
        d, sizes, adaptive, rule
    )


@given(distinct)
def test_the_last_layer_lengthened_is_the_first_beyond_the_crossing(entries):
    d, sizes, _ = columns(entries)
    result = adjust(d, sizes)
    order = sorted(range(len(d)), key=lambda layer: d[layer])
    last = max(k for k, layer in enumerate(order) if result[layer] == TAU * PHI)
    # No gap below it
    assert all(result[layer] == TAU * PHI for layer in order[: last + 1])

    def beyond(k):
        mass = [Fraction(d[layer]) * sizes[layer] for layer in order]
        delta, lam = (
            sum(mass[: k + 1]) / sum(mass),
            Fraction(sum(sizes[layer] for layer in order[: k + 1]), sum(sizes)),
        )
        return 1 - lam < delta

    # With every layer adaptive there always is a crossing: at the top δ = λ = 1
    assert beyond(last)
    assert last == 0 or not beyond(last - 1)


@given(distinct, rules, st.randoms(use_true_random=False))
def test_the_order_of_layers_does_not_matter_where_no_two_d_are_equal(
    entries, rule, random
):
    shuffled = random.sample(entries, len(entries))
    d, sizes, adaptive = columns(entries)
    before = dict(zip(d, adjust(d, sizes, adaptive=adaptive, rule=rule), strict=True))
    d, sizes, adaptive = columns(shuffled)
    assert (
        dict(zip(d, adjust(d, sizes, adaptive=adaptive, rule=rule), strict=True))
        == before
    )


@given(layers(st.floats(2.0**-40, 2.0**40)), rules, st.integers(-60, 60))
def test_the_scale_of_d_does_not_matter(entries, rule, exponent):
    # A power of two changes no bit of a mantissa, so the decision is exactly the same, ties included.
    d, sizes, adaptive = columns(entries)
    scaled = [value * 2.0**exponent for value in d]
    assert adjust(scaled, sizes, adaptive=adaptive, rule=rule) == adjust(
        d, sizes, adaptive=adaptive, rule=rule
    )


@given(distinct)
def test_the_printed_rule_lengthens_every_adaptive_layer_but_the_one_of_largest_d(
    entries,
):
    # δ_l < λ_l: a Lorenz curve lies below its diagonal and meets it only at its end.
    d, sizes, adaptive = columns(entries)
    top = d.index(max(d))
    expected = [
        TAU * PHI if adaptive[layer] and layer != top else TAU
        for layer in range(len(d))
    ]
    assert adjust(d, sizes, adaptive=adaptive, rule="printed") == expected


@given(all_kinds.filter(moved), rules)
def test_pinned_layers_stay_at_the_base_interval(entries, rule):
    d, sizes, adaptive = columns(entries)
    result = adjust(d, sizes, adaptive=adaptive, rule=rule)
    assert [
        interval for interval, flag in zip(result, adaptive, strict=True) if not flag
    ] == [TAU] * adaptive.count(False)


@given(all_kinds, rules, st.sampled_from([1, 5]))
def test_factor_one_changes_nothing(entries, rule, base):
    d, sizes, adaptive = columns(entries)
    options = {
        "base_interval": base,
        "increase_factor": 1,
        "adaptive": adaptive,
        "rule": rule,
    }
    assert adjust_intervals(d, sizes, **options) == [base] * len(d)


# -- by hand


def test_crossing_stops_at_the_first_layer_where_delta_overtakes():
    # d·n: 1·40, 2·30, 4·20, 8·10 = 40, 60, 80, 80; D = 260, N = 100.
    # l=1: 1−λ = .60, δ = 40/260 = .15   l=2: 1−λ = .30, δ = 100/260 = .38 → crossed, and lengthened
    assert adjust([1.0, 2.0, 4.0, 8.0], [40, 30, 20, 10]) == [18, 18, 6, 6]


def test_equality_is_no_crossing():
    # Two equal layers: l=1: 1−λ = ½ and δ = ½, not less, so the second is lengthened as well.
    assert adjust([1.0, 1.0], [5, 5]) == [18, 18]
    # n = 2³⁰ + 1 against 2³⁰, equal d: 1 − λ < δ, by one part in 2³¹
    assert adjust([1.0, 1.0], [2**30 + 1, 2**30]) == [18, 6]


def test_rounding_makes_no_crossing():
    # Equal d make δ = λ, so the walk goes on beyond λ = ½: with n = 1, 5, 6 that is λ = 1/12, 1/2, 1, all three.
    # In floats (0.3·1 + 0.3·5) / (0.3·1 + 0.3·5 + 0.3·6) is 0.5000000000000001 and would end it at the second.
    assert adjust([0.3, 0.3, 0.3], [1, 5, 6]) == [18, 18, 18]


def test_released_counts_lambda_over_adaptive_layers_only():
    # pinned n = 50, d = 0.1; adaptive A: n = 30, d = 1; B: n = 20, d = 1.25.  D = 5 + 30 + 25 = 60.
    # released at A: 1−λ = 1 − 30/50 = .40 < δ = 30/60 = .50 → stops at A.
    # crossing at A: 1−λ = 1 − 30/100 = .70 > .50; at B: 1 − 50/100 = .50 < δ = 55/60 → A and B.
    d, sizes, adaptive = [0.1, 1.0, 1.25], [50, 30, 20], [False, True, True]
    assert adjust(d, sizes, adaptive=adaptive, rule="released") == [6, 18, 6]
    assert adjust(d, sizes, adaptive=adaptive, rule="crossing") == [6, 18, 18]


def test_released_takes_the_total_discrepancy_over_all_layers():
    # As above with d = 1.0 of the pinned layer: D = 50 + 30 + 25 = 105, δ_A = 30/105 = .29 < .40, so B follows.
    assert adjust(
        [1.0, 1.0, 1.25], [50, 30, 20], adaptive=[False, True, True], rule="released"
    ) == [6, 18, 18]


def test_pinned_layers_count_in_the_totals():
    # A: n = 60, d = 1; B: n = 40, d = 2. Alone: 1−λ = .40, δ = 60/140 = .43 → only A.
    assert adjust([1.0, 2.0], [60, 40]) == [18, 6]
    # A pinned third layer n = 100, d = 0 moves λ_A to .30: .70 > .43, so B is lengthened too.
    assert adjust([1.0, 2.0, 0.0], [60, 40, 100], adaptive=[True, True, False]) == [
        18,
        18,
        6,
    ]
    # One of n = 1, d = 20 moves δ_A to 60/160 = .375 < 1 − 60/101 = .406, so B is lengthened too.
    assert adjust([1.0, 2.0, 20.0], [60, 40, 1], adaptive=[True, True, False]) == [
        18,
        18,
        6,
    ]


def test_accelerate_shortens_by_descending_d():
    # d·n: 8·10, 1·30, 0.5·60 = 80, 30, 30; D = 140, N = 100.
    # A: 1−δ = 60/140 = .43 > λ = .10; B: 1−δ = 30/140 = .21 < λ = .40 → A and B shortened to 6/3.
    assert adjust([0.5, 8.0, 1.0], [60, 10, 30], rule="accelerate") == [6, 2, 2]


def test_accelerate_stops_at_once_where_one_layer_holds_nearly_all_discrepancy():
    # A: d·n = 100·50 = 5000 of 5050: 1−δ = .01 < λ = .5.
    assert adjust([1.0, 100.0], [50, 50], rule="accelerate") == [6, 2]


def test_printed_by_hand():
    # Sorted: B 1·10, C 2·10 (pinned), A 3·10. δ/λ: 10/60 < 1/3 → B; 30/60 < 2/3 but C is pinned; 1 < 1 fails for A.
    assert adjust(
        [3.0, 1.0, 2.0], [10, 10, 10], adaptive=[True, True, False], rule="printed"
    ) == [6, 18, 6]


def test_ties_are_walked_in_layer_order():
    # All d equal: δ = λ, so the walk ends at the first λ > ½. n = 7, 3: λ = .7 at once; n = 3, 7: λ = .3, then 1.
    assert adjust([1.0, 1.0], [7, 3]) == [18, 6]
    assert adjust([1.0, 1.0], [3, 7]) == [18, 18]
    # accelerate: 1 − δ < λ is λ > ½ as well, and a descending walk keeps the order of ties too
    assert adjust([1.0, 1.0], [7, 3], rule="accelerate") == [2, 6]
    assert adjust([1.0, 1.0], [3, 7], rule="accelerate") == [2, 2]


@pytest.mark.parametrize("rule", VARIANTS)
def test_all_zero_discrepancy_keeps_the_intervals(rule):
    assert adjust([0.0, 0.0, 0.0], [3, 4, 5], current=[18, 6, 18], rule=rule) == [
        18,
        6,
        18,
    ]
    assert adjust([0.0, 0.0, 0.0], [3, 4, 5], rule=rule) == [6, 6, 6]


def test_current_intervals_do_not_sway_a_decision():
    assert (
        adjust([1.0, 2.0], [60, 40], current=[6, 18])
        == adjust([1.0, 2.0], [60, 40])
        == [18, 6]
    )


def test_without_an_adaptive_layer_nothing_changes():
    for rule in VARIANTS:
        assert adjust([1.0, 2.0], [3, 4], adaptive=[False, False], rule=rule) == [6, 6]


def test_a_model_of_one_layer_is_lengthened():
    assert adjust([0.25], [7]) == [18]  # δ = λ = 1: 0 < 1
    assert adjust([0.25], [7], rule="printed") == [6]  # 1 < 1 fails


def test_numpy_arrays_are_fine():
    numpy = pytest.importorskip("numpy")
    assert adjust(numpy.array([1.0, 2.0]), numpy.array([60, 40])) == [18, 6]


def test_the_curves_of_figure_1():
    # Sorted: 1·40, 2·30, 4·30 = 40, 60, 120 of 220; sizes 40, 70, 100 of 100.
    delta, kept = crossing_curves([4.0, 1.0, 2.0], [30, 40, 30])
    assert delta == pytest.approx([40 / 220, 100 / 220, 1.0])
    assert kept == pytest.approx([0.6, 0.3, 0.0])
    assert crossing_curves([0.0, 0.0], [1, 2]) == ([0.0, 0.0], [0.0, 0.0])
    with pytest.raises(InputError, match="rule must be one of crossing"):
        crossing_curves([1.0], [1], rule="crosing")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"base_interval": 0}, "base_interval must be at least 1, not 0"),
        ({"increase_factor": -2}, "increase_factor must be at least 1, not -2"),
        ({"base_interval": 2.5}, "base_interval must be a whole number, not 2.5"),
        ({"increase_factor": True}, "increase_factor must be a whole number, not True"),
        (
            {"rule": "crossed"},
            "rule must be one of crossing, released, printed, accelerate, not 'crossed'",
        ),
        (
            {"rule": "accelerate", "increase_factor": 4},
            r"increase_factor \(4\) must divide base_interval \(6\)",
        ),
        ({"discrepancy": [1.0]}, "discrepancy has 1 entries for 2 layers"),
        ({"adaptive": [True]}, "adaptive has 1 entries for 2 layers"),
        ({"current": [6, 6, 6]}, "current has 3 entries for 2 layers"),
        (
            {"discrepancy": [1.0, float("nan")]},
            "discrepancy must be finite and not negative, but layer 1 has nan",
        ),
        ({"discrepancy": [float("inf"), 1.0]}, "but layer 0 has inf"),
        ({"discrepancy": [1.0, -1e-9]}, "but layer 1 has -1e-09"),
        ({"sizes": [3, 0]}, "the size of layer 1 must be at least 1, not 0"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(options, sentence):
    given_ = {"discrepancy": [1.0, 2.0], "sizes": [3, 4], **options}
    with pytest.raises(InputError, match=sentence):
        adjust(given_.pop("discrepancy"), given_.pop("sizes"), **given_)
