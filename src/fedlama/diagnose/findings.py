"""What a diagnosis found, as values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from fedlama.core import BoundTerms
from fedlama.diagnose.layers import LayerProfile, Prediction

GRADIENT_VARIANCE = "gradient variance"  # its name where it is left out


@dataclass(frozen=True)
class Constants:
    """The constants of Theorem 5.3, estimated at the first weights and after the first cycles.

    Arguments:
        smoothness: L, the larger of both points; None where it could not be estimated.
        gradient_variance: σ² of a stochastic gradient, the mean over clients, the larger of both points.
        largest_variance: the same of the noisiest client.
        dissimilarity: β².
        heterogeneity: κ².
        initial_gap: F(u_0), which is not below F(u_0) − F* where losses are not negative.
    """

    smoothness: float | None
    gradient_variance: float
    largest_variance: float
    dissimilarity: float
    heterogeneity: float
    initial_gap: float


@dataclass(frozen=True)
class Theory:
    """What the theorem says with these constants.

    Arguments:
        limit: its largest learning rate.
        at_limit: its four terms at that rate.
        at_configured: the same formulas at the configured rate; beyond the limit they are no bound.
        speedup_cycles: Remark 1's horizon, in cycles; None where gap and noise are both zero.
    """

    limit: float
    at_limit: BoundTerms
    at_configured: BoundTerms
    speedup_cycles: int | None


@dataclass(frozen=True)
class Diagnosis:
    """All that was found; `omitted` names what was left out, and why.

    Arguments:
        learning_rate: as configured.
        momentum: of the clients' SGD; the theorem knows none, and compares with η/(1 − momentum).
        base_interval: τ'.
        increase_factor: φ.
        iterations: steps of the whole run.
        clients: m, how many are active at a time.
        probed: the clients that were looked at.
        constants: L, σ², β², κ² and the initial gap.
        theory: limit and terms; None without L.
        cycles: how many were run.
        layers: d_l of every layer in the first cycle, and its interval after the first adjustment.
        crossing: the curves δ_l and 1 − λ_l that the first adjustment walks along.
        later_layers: the same as `layers` in the last cycle that was run; predictions follow from it.
        root_spread: the coefficient of variation of √d_l, weighted by size, in the last cycle.
        predictions: what each policy would send.
        coded: the names of those with a code, which costs noise instead of drift.
        recommendation: one or two sentences.
        omitted: name of an estimate → why it is missing.
    """

    learning_rate: float
    momentum: float
    base_interval: int
    increase_factor: int
    iterations: int
    clients: int
    probed: list[int]
    constants: Constants
    theory: Theory | None
    cycles: int
    layers: list[LayerProfile]
    crossing: tuple[list[float], list[float]]
    later_layers: list[LayerProfile]
    root_spread: float
    predictions: list[Prediction]
    coded: tuple[str, ...]
    recommendation: str
    omitted: dict[str, str] = field(default_factory=dict)

    @property
    def interval(self) -> int:
        """τ = φτ', the longest interval."""
        return self.base_interval * self.increase_factor

    @property
    def effective_rate(self) -> float:
        """η/(1 − momentum): how far a steady gradient moves the model per step."""
        return self.learning_rate / (1 - self.momentum)

    @property
    def best_gain(self) -> float:
        """1/(1 + CV²): no intervals have less of a FedAvg's discrepancy at equal bytes."""
        return 1 / (1 + self.root_spread**2)

    def to_plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = asdict(self)
        delta, kept = self.crossing
        values["crossing"] = {
            "delta": delta,
            "one_minus_lambda": kept,
        }

        # What follows from the fields is written down as well: readers of the JSON do not have these properties.
        values["interval"] = self.interval
        values["effective_rate"] = self.effective_rate
        values["best_gain"] = self.best_gain
        return values
