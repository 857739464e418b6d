"""Remark 1: from which number of cycles more clients speed the training up as much as there are more of them."""

from __future__ import annotations

import math

from fedlama.base.checks import check_number, check_whole
from fedlama.base.errors import InputError
from fedlama.core.bounds import largest_learning_rate


def linear_speedup_rounds(
    *,
    smoothness: float,
    interval: int,
    clients: int,
    initial_gap: float,
    gradient_variance: float,
    heterogeneity: float,
    dissimilarity: float = 1.0,
) -> int:
    """The number of cycles T from which Remark 1's linear speed-up (Eq. 7) shows, with its learning rate η = √(m/T).

    Then the first two terms are (4(F(u_0) − F*)/τ + 2Lσ²)/√(mT), and the last two (3L²(τ−1)σ² + 6L²τ(τ−1)κ²)·m/T. The
    horizon is the first T at which √(m/T) is within the theorem's limit and the last two are not above the first two:
    from there on, m clients need m times fewer cycles for the same bound, up to a factor of 2². The paper says
    T > m³, which is the second condition where both brackets are equal. Remark 1's η is a plain number: lengths and
    losses have to be measured in units in which that makes sense.

    Arguments:
        smoothness: L > 0 (assumption 1).
        interval: τ = φτ' ≥ 1, the longest interval in steps.
        clients: m ≥ 1, the clients that are averaged.
        initial_gap: F(u_0) − F* ≥ 0; it and σ² must not both be zero.
        gradient_variance: σ² ≥ 0 (assumption 3).
        heterogeneity: κ² ≥ 0 (assumption 4).
        dissimilarity: β² ≥ 1 (assumption 4).
    """
    limit = largest_learning_rate(
        smoothness=smoothness,
        interval=interval,
        dissimilarity=dissimilarity,
    )
    check_whole("clients", clients, minimum=1)
    check_number("initial_gap", initial_gap, minimum=0)
    check_number("gradient_variance", gradient_variance, minimum=0)
    check_number("heterogeneity", heterogeneity, minimum=0)
    # The bracket of the first two terms, which m clients divide by √(mT)
    from_gap = 4 * initial_gap / interval
    from_noise = 2 * smoothness * gradient_variance
    averaged = from_gap + from_noise
    if averaged == 0:
        raise InputError(
            "initial_gap and gradient_variance are both zero: there is nothing left to speed up"
        )
    # The bracket of the last two terms, which more clients make worse at this learning rate: m/T
    sources = gradient_variance + 2 * interval * heterogeneity
    apart = 3 * smoothness**2 * (interval - 1) * sources
    # √(m/T) ≤ limit
    until_allowed = clients / limit**2
    # apart · m/T ≤ averaged / √(mT)
    ratio = apart / averaged
    until_averaged_dominates = clients**3 * ratio**2
    return max(
        1,
        math.ceil(until_allowed),
        math.ceil(until_averaged_dominates),
    )
