"""The convergence theory: Lemmas 5.1 and 5.2 and Theorem 5.3, without their misprints. Remark 1 is in `speedup`.

(1/T) Σ E‖∇F(u_t)‖² ≤ 4(F(u_0) − F*)/(ητT) + 2Lησ²/m + 3L²η²(τ−1)σ² + 6η²L²τ(τ−1)κ²

τ is the longest interval φτ', T the number of cycles of τ steps, F* the infimum of F. The paper prints the third term
with a stray factor T (a division by T that missed it); `as_printed=True` gives that one.

Units: let the loss be measured in [F] and parameters in [x]. Then L is in [F]/[x]², η in [x]²/[F], squared gradients
(σ², κ² and both sides of the theorem) in [F]²/[x]², squared distances in [x]²; β², A, τ, T and m are plain numbers.
Equations are numbered as in the text whose Lemma 5.2 is Eq. 5. `docs/theory.md` has the proofs, the errata, and how far
exact values lie below these bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedlama.base.checks import check_number, check_whole
from fedlama.base.errors import InputError


@dataclass(frozen=True)
class BoundTerms:
    """The four terms on the right-hand side of Theorem 5.3, each in units of a squared gradient.

    Arguments:
        optimisation: 4(F(u_0) − F*)/(ητT), what is left of the initial gap; falls with the number of steps.
        noise: 2Lησ²/m, the noise that is left in an average of m clients.
        drift: 3L²η²(τ−1)σ², the noise that drives copies apart between two averages.
        heterogeneity: 6η²L²τ(τ−1)κ², the differences between clients' data that drive copies apart.
    """

    optimisation: float
    noise: float
    drift: float
    heterogeneity: float

    @property
    def total(self) -> float:
        """The right-hand side itself."""
        return self.optimisation + self.noise + self.drift + self.heterogeneity

    @property
    def dominant(self) -> str:
        """The name of the largest term; of equal ones, the first."""
        values = {
            "optimisation": self.optimisation,
            "noise": self.noise,
            "drift": self.drift,
            "heterogeneity": self.heterogeneity,
        }
        return max(values, key=lambda name: values[name])


def largest_learning_rate(
    *, smoothness: float, interval: int, dissimilarity: float = 1.0
) -> float:
    """The limit on η in Theorem 5.3, min{1/(τL), 1/(L√(2τ(τ−1)(2β²+1)))}, in [x]²/[F].

    Arguments:
        smoothness: L > 0, a Lipschitz constant of every client's gradient (assumption 1), in [F]/[x]².
        interval: τ ≥ 1, the longest interval in steps.
        dissimilarity: β² ≥ 1 (assumption 4).
    """
    check_number("smoothness", smoothness, above=0)
    check_whole("interval", interval, minimum=1)
    check_number("dissimilarity", dissimilarity, minimum=1)

    descent_limit = 1 / (interval * smoothness)  # Lemma 5.1
    if interval == 1:
        # Copies that are averaged after every step do not drift.
        return descent_limit
    # A ≤ 1/(2β²+1)
    dissimilar = 2 * dissimilarity + 1
    root = math.sqrt(2 * interval * (interval - 1) * dissimilar)
    drift_limit = 1 / (smoothness * root)
    return min(descent_limit, drift_limit)


def drift_factor(*, learning_rate: float, smoothness: float, interval: int) -> float:
    """A = 2η²L²τ(τ−1) of Lemma 5.2, a plain number. The lemma needs A < 1, the theorem A ≤ 1/(2β²+1).

    Arguments:
        learning_rate: η > 0, in [x]²/[F].
        smoothness: L > 0, in [F]/[x]².
        interval: τ ≥ 1, the longest interval in steps.
    """
    check_number("learning_rate", learning_rate, above=0)
    check_number("smoothness", smoothness, above=0)
    check_whole("interval", interval, minimum=1)
    squared_step = (learning_rate * smoothness) ** 2
    return 2 * squared_step * interval * (interval - 1)


def framework_bound(
    *,
    learning_rate: float,
    smoothness: float,
    interval: int,
    rounds: int,
    clients: int,
    gradient_variance: float,
    decrease: float,
    discrepancy: float,
) -> float:
    """The right-hand side of Lemma 5.1, which bounds Σ_t E‖∇F(u_t)‖² over T cycles, in [F]²/[x]².

    2(F(u_0) − E F(u_T))/(ητ) + LηTσ²/m + (L²/τ)·discrepancy, for η ≤ 1/(τL)

    As printed, the lemma has F(u_{T−1}) and the steps j = 1 … τ. The formula is the same; what is put in differs, and
    with the printed meaning the lemma is false.

    Arguments:
        learning_rate: η, above 0 and at most 1/(τL).
        smoothness: L > 0.
        interval: τ ≥ 1, the longest interval in steps.
        rounds: T ≥ 1, the number of cycles of τ steps.
        clients: m ≥ 1, the clients that are averaged.
        gradient_variance: σ² ≥ 0 (assumption 3).
        decrease: F(u_0) − E F(u_T), in [F]; negative where the loss rose.
        discrepancy: Σ_t Σ_{j=0}^{τ−1} (1/m) Σ_i E‖x_{t,j}^i − u_t‖² ≥ 0, in [x]²: the sum of Lemma 5.2's left-hand side
            over all cycles.
    """
    check_whole("rounds", rounds, minimum=1, maximum=math.inf)
    check_whole("clients", clients, minimum=1)
    check_number("gradient_variance", gradient_variance, minimum=0)
    check_number("decrease", decrease, above=-math.inf)
    check_number("discrepancy", discrepancy, minimum=0)
    check_number("smoothness", smoothness, above=0)
    check_whole("interval", interval, minimum=1)
    limit = 1 / (interval * smoothness)
    _check_learning_rate(learning_rate, limit, "Lemma 5.1")

    # 2(F(u_0) − E F(u_T))/(ητ)
    cycle_length = learning_rate * interval
    progress = 2 * decrease / cycle_length
    # LηTσ²/m
    noise = smoothness * learning_rate * rounds * gradient_variance / clients
    # (L²/τ)·discrepancy
    apart = smoothness**2 / interval * discrepancy
    return progress + noise + apart


def discrepancy_bound(
    *,
    learning_rate: float,
    smoothness: float,
    interval: int,
    gradient_variance: float,
    heterogeneity: float,
    squared_gradient: float,
    dissimilarity: float = 1.0,
) -> float:
    """The right-hand side of Lemma 5.2 (Eq. 5), a bound on Σ_{j=0}^{τ−1} (1/m) Σ_i E‖x_{t,j}^i − u_t‖² in [x]².

    η²τ(τ−1)σ²/(1−A) + τA(β²E‖∇F(u_t)‖² + κ²)/((1−A)L²), for A = 2η²L²τ(τ−1) < 1

    Arguments:
        learning_rate: η > 0, small enough for A < 1.
        smoothness: L > 0.
        interval: τ ≥ 1, the longest interval in steps.
        gradient_variance: σ² ≥ 0 (assumption 3).
        heterogeneity: κ² ≥ 0 (assumption 4).
        squared_gradient: E‖∇F(u_t)‖² ≥ 0, where the cycle begins.
        dissimilarity: β² ≥ 1 (assumption 4).
    """
    factor = drift_factor(
        learning_rate=learning_rate,
        smoothness=smoothness,
        interval=interval,
    )
    if factor >= 1:
        raise InputError(
            f"Lemma 5.2 needs A = 2η²L²τ(τ−1) < 1, but learning_rate = {learning_rate:g} gives {factor:g}"
        )
    check_number("gradient_variance", gradient_variance, minimum=0)
    check_number("heterogeneity", heterogeneity, minimum=0)
    check_number("squared_gradient", squared_gradient, minimum=0)
    check_number("dissimilarity", dissimilarity, minimum=1)

    from_noise = learning_rate**2 * interval * (interval - 1) * gradient_variance
    # Bounds the mean of the clients' squared gradients
    of_clients = dissimilarity * squared_gradient + heterogeneity
    from_gradients = interval * factor * of_clients / smoothness**2
    return (from_noise + from_gradients) / (1 - factor)


def convergence_terms(
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
    as_printed: bool = False,
) -> BoundTerms:
    """The four terms of Theorem 5.3 (Eq. 6), which add up to its bound on (1/T) Σ_t E‖∇F(u_t)‖², in [F]²/[x]².

    A learning rate beyond the theorem's limit is refused: the bound says nothing there.

    Arguments:
        learning_rate: η, above 0 and at most `largest_learning_rate`.
        smoothness: L > 0 (assumption 1).
        interval: τ = φτ' ≥ 1, the longest interval in steps.
        rounds: T ≥ 1, the number of cycles of τ steps.
        clients: m ≥ 1, the clients that are averaged.
        initial_gap: F(u_0) − F* ≥ 0, in [F]; F* is the infimum of F.
        gradient_variance: σ² ≥ 0 (assumption 3).
        heterogeneity: κ² ≥ 0 (assumption 4).
        dissimilarity: β² ≥ 1 (assumption 4); it enters through the limit only.
        as_printed: multiply the drift term by T, as Eq. 6 does in print.
    """
    limit = largest_learning_rate(
        smoothness=smoothness,
        interval=interval,
        dissimilarity=dissimilarity,
    )
    _check_learning_rate(learning_rate, limit, "the theorem")
    check_whole("rounds", rounds, minimum=1, maximum=math.inf)
    check_whole("clients", clients, minimum=1)
    check_number("initial_gap", initial_gap, minimum=0)
    check_number("gradient_variance", gradient_variance, minimum=0)
    check_number("heterogeneity", heterogeneity, minimum=0)

    # 4(F(u_0) − F*)/(ητT)
    run_length = learning_rate * interval * rounds
    optimisation = 4 * initial_gap / run_length
    # 2Lησ²/m
    noise = 2 * smoothness * learning_rate * gradient_variance / clients
    # 3L²η²(τ−1)σ²
    squared_step = (smoothness * learning_rate) ** 2
    drift = 3 * squared_step * (interval - 1) * gradient_variance
    if as_printed:
        drift *= rounds
    # 6η²L²τ(τ−1)κ²
    from_clients = 6 * squared_step * interval * (interval - 1) * heterogeneity
    return BoundTerms(
        optimisation=optimisation,
        noise=noise,
        drift=drift,
        heterogeneity=from_clients,
    )


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
    as_printed: bool = False,
) -> float:
    """The right-hand side of Theorem 5.3 (Eq. 6): the sum of `convergence_terms`, whose arguments these are.

    Arguments:
        learning_rate: η, above 0 and at most `largest_learning_rate`.
        smoothness: L > 0 (assumption 1).
        interval: τ = φτ' ≥ 1, the longest interval in steps.
        rounds: T ≥ 1, the number of cycles of τ steps.
        clients: m ≥ 1, the clients that are averaged.
        initial_gap: F(u_0) − F* ≥ 0.
        gradient_variance: σ² ≥ 0 (assumption 3).
        heterogeneity: κ² ≥ 0 (assumption 4).
        dissimilarity: β² ≥ 1 (assumption 4).
        as_printed: with the paper's stray factor T.
    """
    terms = convergence_terms(
        learning_rate=learning_rate,
        smoothness=smoothness,
        interval=interval,
        rounds=rounds,
        clients=clients,
        initial_gap=initial_gap,
        gradient_variance=gradient_variance,
        heterogeneity=heterogeneity,
        dissimilarity=dissimilarity,
        as_printed=as_printed,
    )
    return terms.total


def _check_learning_rate(learning_rate: float, limit: float, statement: str) -> None:
    check_number("learning_rate", learning_rate, above=-math.inf)
    # The limit itself is allowed, also where it was computed in another order and differs in its last bit.
    tolerated = limit * (1 + 1e-12)
    if not 0 < learning_rate <= tolerated:
        raise InputError(
            f"{statement} needs 0 < learning_rate <= {limit:.6g}, not {learning_rate:.6g}"
        )
