"""Theorem 5.3, without its misprint, and its limits on the step size.

(1/T) Σ E‖∇F(u_t)‖² ≤ 4(F(u_0) − F*)/(ητT) + 2Lησ²/m + 3L²η²(τ−1)σ² + 6η²L²τ(τ−1)κ²

The paper prints the third term with a stray factor T (a division by T that missed it); with it, Remark 1's linear
speed-up would not follow. τ is the longest interval, φτ'; F* is the infimum of F.
"""

from __future__ import annotations

import math

from fedlama.base.errors import InputError


def largest_learning_rate(*, smoothness: float, interval: int, dissimilarity: float = 1.0) -> float:
    """The theorem's limit on η: min{1/(τL), 1/(L√(2τ(τ−1)(2β²+1)))}, with `dissimilarity` = β² ≥ 1."""
    if smoothness <= 0 or interval < 1 or dissimilarity < 1:
        raise InputError("the theorem needs smoothness > 0, interval >= 1 and dissimilarity (beta squared) >= 1")
    first = 1 / (interval * smoothness)
    if interval == 1:
        return first
    second = 1 / (smoothness * math.sqrt(2 * interval * (interval - 1) * (2 * dissimilarity + 1)))
    return min(first, second)


def convergence_bound(
    *,
    learning_rate: float,
    smoothness: float,
    interval: int,
    rounds: int,
    clients: int,
    initial_gap: float,
    gradient_variance: float,
    heterogeneity: float,
    dissimilarity: float = 1.0,
) -> float:
    """The right-hand side of Theorem 5.3 after `rounds` cycles of `interval` = φτ' steps.

    `initial_gap` is F(u_0) − F*, `gradient_variance` σ², `heterogeneity` κ² and `dissimilarity` β². A learning rate
    beyond the theorem's limit is refused: the bound says nothing there.
    """
    if rounds < 1 or clients < 1:
        raise InputError(f"the theorem needs at least one round and one client, not {rounds} and {clients}")
    limit = largest_learning_rate(smoothness=smoothness, interval=interval, dissimilarity=dissimilarity)
    if not 0 < learning_rate <= limit:
        raise InputError(f"the theorem needs 0 < learning_rate <= {limit:.6g}, not {learning_rate:.6g}")
    eta, tau, squared = learning_rate, interval, (smoothness * learning_rate) ** 2
    optimisation = 4 * initial_gap / (eta * tau * rounds)
    noise = 2 * smoothness * eta * gradient_variance / clients
    drift = 3 * squared * (tau - 1) * gradient_variance
    heterogeneous = 6 * squared * tau * (tau - 1) * heterogeneity
    return optimisation + noise + drift + heterogeneous
