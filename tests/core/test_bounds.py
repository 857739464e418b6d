"""Theorem 5.3 with numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlama import InputError
from fedlama.core import convergence_bound, largest_learning_rate

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
    assert convergence_bound(**{**SETTING, "rounds": 500}) == pytest.approx(0.6 + 0.0025 + 0.0018 + 0.0072)


@given(st.integers(1, 1000))
def test_noise_falls_linearly_with_clients(clients):
    rest = convergence_bound(**{**SETTING, "gradient_variance": 0.0})
    drift = 3 * 4 * 0.0001 * 3 * 0.5
    assert convergence_bound(**{**SETTING, "clients": clients}) - rest - drift == pytest.approx(0.02 / clients)


def test_the_limit_by_hand():
    # τ = 1: 1/L
    assert largest_learning_rate(smoothness=4.0, interval=1) == 0.25
    # τ = 2, L = 1, β² = 1: 1/2 against 1/√(2·2·1·3) = 1/√12 = .2887
    assert largest_learning_rate(smoothness=1.0, interval=2) == pytest.approx(1 / math.sqrt(12))
    # τ = 3, L = 2, β² = 4: 1/6 against 1/(2√(2·3·2·9)) = 1/(2√108) = .0481
    assert largest_learning_rate(smoothness=2.0, interval=3, dissimilarity=4.0) == pytest.approx(1 / (2 * 108**0.5))


def test_the_limit_itself_is_allowed_and_anything_beyond_is_refused():
    limit = largest_learning_rate(smoothness=2.0, interval=4)
    assert convergence_bound(**{**SETTING, "learning_rate": limit}) > 0
    with pytest.raises(InputError, match=r"0 < learning_rate <= 0\.0589256, not 0\.06"):  # 1/(2√(2·4·3·3)) = 1/(2√72)
        convergence_bound(**{**SETTING, "learning_rate": 0.06})
    with pytest.raises(InputError, match="not 0"):
        convergence_bound(**{**SETTING, "learning_rate": 0.0})


@pytest.mark.parametrize("wrong", [{"smoothness": 0.0}, {"interval": 0}, {"dissimilarity": 0.5}])
def test_constants_that_no_problem_has_are_refused(wrong):
    with pytest.raises(InputError, match="the theorem needs"):
        largest_learning_rate(**{"smoothness": 1.0, "interval": 2, **wrong})
