"""Lemmas 5.1 and 5.2, Theorem 5.3 and Remark 1 with numbers."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlama import InputError
from fedlama.core import (
    BoundTerms,
    convergence_bound,
    convergence_terms,
    discrepancy_bound,
    drift_factor,
    framework_bound,
    largest_learning_rate,
    linear_speedup_rounds,
)

SETTING = {
    "learning_rate": 0.01,
    "smoothness": 2.0,
    "interval": 4,
    "rounds": 50,
    "clients": 8,
    "initial_gap": 3.0,
    "gradient_variance": 0.5,
    "heterogeneity": 0.25,
}


def test_the_bound_by_hand():
    # 4·3/(.01·4·50) = 6      2·2·.01·.5/8 = .0025      3·4·.0001·3·.5 = .0018      6·.0001·4·4·3·.25 = .0072
    assert convergence_bound(**SETTING) == pytest.approx(6 + 0.0025 + 0.0018 + 0.0072)


def test_with_one_local_step_only_optimisation_and_noise_remain():
    # τ = 1: 4·3/(.01·50) = 24, and .0025; both drift terms carry τ − 1
    assert convergence_bound(**{**SETTING, "interval": 1}) == pytest.approx(24.0025)


def test_the_drift_term_has_no_factor_of_rounds():
    # The paper's misprint would make it grow with T. From 50 to 500 rounds only 6 → 0.6 changes.
    assert convergence_bound(**{**SETTING, "rounds": 500}) == pytest.approx(
        0.6 + 0.0025 + 0.0018 + 0.0072
    )


@given(st.integers(1, 1000))
def test_noise_falls_linearly_with_clients(clients):
    rest = convergence_bound(**{**SETTING, "gradient_variance": 0.0})
    drift = 3 * 4 * 0.0001 * 3 * 0.5
    assert convergence_bound(
        **{**SETTING, "clients": clients}
    ) - rest - drift == pytest.approx(0.02 / clients)


def test_the_limit_by_hand():
    # τ = 1: 1/L
    assert largest_learning_rate(smoothness=4.0, interval=1) == 0.25
    # τ = 2, L = 1, β² = 1: 1/2 against 1/√(2·2·1·3) = 1/√12 = .2887
    assert largest_learning_rate(smoothness=1.0, interval=2) == pytest.approx(
        1 / math.sqrt(12)
    )
    # τ = 3, L = 2, β² = 4: 1/6 against 1/(2√(2·3·2·9)) = 1/(2√108) = .0481
    assert largest_learning_rate(
        smoothness=2.0, interval=3, dissimilarity=4.0
    ) == pytest.approx(1 / (2 * 108**0.5))


def test_the_limit_itself_is_allowed_and_anything_beyond_is_refused():
    limit = largest_learning_rate(smoothness=2.0, interval=4)
    assert convergence_bound(**{**SETTING, "learning_rate": limit}) > 0
    # 1/(2√(2·4·3·3)) = 1/(2√72)
    with pytest.raises(InputError, match=r"0 < learning_rate <= 0\.0589256, not 0\.06"):
        convergence_bound(**{**SETTING, "learning_rate": 0.06})
    with pytest.raises(InputError, match="not 0"):
        convergence_bound(**{**SETTING, "learning_rate": 0.0})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"smoothness": 0.0}, "smoothness must be above 0, not 0.0"),
        ({"smoothness": math.inf}, "smoothness must be above 0, not inf"),
        ({"smoothness": math.nan}, "smoothness must be above 0, not nan"),
        ({"interval": 0}, "interval must be at least 1, not 0"),
        ({"interval": 2.5}, "interval must be a whole number, not 2.5"),
        ({"dissimilarity": 0.5}, "dissimilarity must be at least 1, not 0.5"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"clients": 0}, "clients must be at least 1, not 0"),
        ({"initial_gap": -1.0}, "initial_gap must be at least 0, not -1.0"),
        ({"gradient_variance": -0.1}, "gradient_variance must be at least 0, not -0.1"),
        ({"heterogeneity": math.nan}, "heterogeneity must be at least 0, not nan"),
        ({"learning_rate": math.nan}, "learning_rate must be above -inf, not nan"),
    ],
)
def test_constants_that_no_problem_has_are_refused(wrong, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        convergence_bound(**{**SETTING, **wrong})


def test_the_four_terms_apart():
    terms = convergence_terms(**SETTING)
    assert terms.optimisation == pytest.approx(6)
    assert terms.noise == pytest.approx(0.0025)
    assert terms.drift == pytest.approx(0.0018)
    assert terms.heterogeneity == pytest.approx(0.0072)
    assert terms.total == convergence_bound(**SETTING)
    assert terms.dominant == "optimisation"
    assert BoundTerms(0.0, 1.0, 3.0, 2.0).dominant == "drift"


def test_as_printed_the_drift_term_is_multiplied_by_the_rounds():
    corrected = convergence_terms(**SETTING)
    printed = convergence_terms(**SETTING, as_printed=True)
    assert printed.drift == pytest.approx(50 * 0.0018)
    assert printed.total - corrected.total == pytest.approx(49 * 0.0018)
    assert convergence_bound(**SETTING, as_printed=True) == printed.total


def test_the_drift_factor_by_hand():
    # A = 2·(.01·2)²·4·3 = 2·.0004·12
    assert drift_factor(
        learning_rate=0.01, smoothness=2.0, interval=4
    ) == pytest.approx(0.0096)
    assert drift_factor(learning_rate=0.01, smoothness=2.0, interval=1) == 0
    with pytest.raises(InputError, match=r"learning_rate must be above 0, not 0"):
        drift_factor(learning_rate=0, smoothness=2.0, interval=4)


@given(st.floats(0.01, 100), st.integers(2, 200), st.floats(1, 50))
def test_at_the_limit_the_drift_factor_is_what_the_theorem_needs(
    smoothness, interval, dissimilarity
):
    limit = largest_learning_rate(
        smoothness=smoothness, interval=interval, dissimilarity=dissimilarity
    )
    factor = drift_factor(learning_rate=limit, smoothness=smoothness, interval=interval)
    # With β² ≥ 1 and τ ≥ 2, √(2τ(τ−1)·3) ≥ √(3τ²) > τ: the second limit is always the smaller one.
    assert factor == pytest.approx(1 / (2 * dissimilarity + 1))


LEMMA_1 = {
    "learning_rate": 0.05,
    "smoothness": 2.0,
    "interval": 4,
    "rounds": 3,
    "clients": 5,
    "gradient_variance": 0.5,
    "decrease": 0.7,
    "discrepancy": 0.06,
}


def test_lemma_1_by_hand():
    # 2·.7/(.05·4) = 7      2·.05·3·.5/5 = .03      4/4·.06 = .06
    assert framework_bound(**LEMMA_1) == pytest.approx(7.09)
    assert framework_bound(**{**LEMMA_1, "decrease": -0.7}) == pytest.approx(-6.91)
    assert framework_bound(**{**LEMMA_1, "learning_rate": 1 / 8}) > 0  # 1/(τL) itself
    with pytest.raises(
        InputError, match=r"Lemma 5\.1 needs 0 < learning_rate <= 0\.125, not 0\.13"
    ):
        framework_bound(**{**LEMMA_1, "learning_rate": 0.13})
    with pytest.raises(InputError, match="discrepancy must be at least 0, not -1"):
        framework_bound(**{**LEMMA_1, "discrepancy": -1})


def test_lemma_1_as_printed_is_false():
    # One client, F = x²/2, u_0 = 1, η = 1, τ = T = 1, σ = 0. Then u_1 = 0, and ‖∇F(u_0)‖² = 1.
    one_step = {
        "learning_rate": 1.0,
        "smoothness": 1.0,
        "interval": 1,
        "rounds": 1,
        "clients": 1,
    }
    # F(u_0) − F(u_1)
    assert (
        framework_bound(**one_step, gradient_variance=0, decrease=0.5, discrepancy=0)
        == 1
    )
    # As printed: F(u_0) − F(u_{T−1}) = 0, and j = 1 … τ sees ‖x_1 − u_0‖² = 1. With η = 1/2: u_1 = 1/2, so 1/4 < 1.
    shorter = {**one_step, "learning_rate": 0.5}
    assert (
        framework_bound(**shorter, gradient_variance=0, decrease=0, discrepancy=0.25)
        == 0.25
    )


LEMMA_2 = {
    "learning_rate": 0.05,
    "smoothness": 2.0,
    "interval": 4,
    "gradient_variance": 0.5,
    "heterogeneity": 0.25,
    "squared_gradient": 0.5,
    "dissimilarity": 1.5,
}


def test_lemma_2_by_hand():
    # A = 2·.01·12 = .24      .0025·12·.5 = .015      4·.24·(1.5·.5 + .25)/4 = .24      (.015 + .24)/.76
    assert discrepancy_bound(**LEMMA_2) == pytest.approx(0.255 / 0.76)
    assert discrepancy_bound(**{**LEMMA_2, "interval": 1}) == 0
    with pytest.raises(
        InputError,
        match=r"Lemma 5\.2 needs A = 2η²L²τ\(τ−1\) < 1, but learning_rate = 0\.2 gives 3\.84",
    ):
        discrepancy_bound(**{**LEMMA_2, "learning_rate": 0.2})


SPEEDUP = {
    "smoothness": 2.0,
    "interval": 4,
    "clients": 8,
    "initial_gap": 3.0,
    "gradient_variance": 0.5,
    "heterogeneity": 0.25,
}


def test_the_linear_speedup_horizon_by_hand():
    # averaged: 4·3/4 + 2·2·.5 = 5      apart: 3·4·3·.5 + 6·4·4·3·.25 = 18 + 72 = 90      8³·(90/5)² = 512·324
    assert linear_speedup_rounds(**SPEEDUP) == 165_888
    # Without noise and heterogeneity only the limit counts: η = √(8/T) ≤ 1/(2√72), T ≥ 8·4·72
    assert (
        linear_speedup_rounds(
            **{**SPEEDUP, "gradient_variance": 0.0, "heterogeneity": 0.0}
        )
        == 2304
    )
    with pytest.raises(InputError, match="both zero"):
        linear_speedup_rounds(
            **{**SPEEDUP, "initial_gap": 0.0, "gradient_variance": 0.0}
        )


@given(
    st.floats(0.1, 10),
    st.integers(1, 40),
    st.integers(1, 64),
    st.floats(0.01, 10),
    st.floats(0, 10),
    st.floats(0, 10),
)
def test_from_the_horizon_on_the_averaged_terms_dominate(
    smoothness, interval, clients, gap, variance, heterogeneity
):
    problem = {
        "smoothness": smoothness,
        "interval": interval,
        "clients": clients,
        "initial_gap": gap,
        "gradient_variance": variance,
        "heterogeneity": heterogeneity,
    }
    horizon = linear_speedup_rounds(**problem)
    for rounds in (horizon, 2 * horizon, 100 * horizon):
        rate = math.sqrt(clients / rounds)
        terms = convergence_terms(**problem, learning_rate=rate, rounds=rounds)
        assert terms.drift + terms.heterogeneity <= (
            terms.optimisation + terms.noise
        ) * (1 + 1e-9)
    if horizon > max(
        1,
        math.ceil(
            clients
            / largest_learning_rate(smoothness=smoothness, interval=interval) ** 2
        ),
    ):
        before = convergence_terms(
            **problem,
            learning_rate=math.sqrt(clients / (horizon - 1)),
            rounds=horizon - 1,
        )
        assert before.drift + before.heterogeneity >= (
            before.optimisation + before.noise
        ) * (1 - 1e-9)
