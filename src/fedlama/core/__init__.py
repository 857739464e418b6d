"""The paper in plain Python: which layers are due, how intervals change, what it cost.

Read beside "Layer-wise Adaptive Model Aggregation for Scalable Federated Learning" (Lee, Zhang, He, Avestimehr).
Suggested order: `layers`, `intervals` (Algorithm 2), `policy` (Algorithm 1), `ledger` (Eq. 5), `bounds` (Theorem 5.3).
Nothing here imports anything but the standard library and `base`.
"""

from fedlama.core.bounds import (
    BoundTerms,
    convergence_bound,
    convergence_terms,
    discrepancy_bound,
    drift_factor,
    framework_bound,
    largest_learning_rate,
    linear_speedup_rounds,
)
from fedlama.core.intervals import RULES, adjust_intervals, crossing_curves
from fedlama.core.layers import Layer, Layout, Tensor
from fedlama.core.ledger import Ledger
from fedlama.core.policy import FedAvg, FedLAMA, Policy, PolicyState, Turn

__all__ = [
    "RULES",
    "BoundTerms",
    "FedAvg",
    "FedLAMA",
    "Layer",
    "Layout",
    "Ledger",
    "Policy",
    "PolicyState",
    "Tensor",
    "Turn",
    "adjust_intervals",
    "convergence_bound",
    "convergence_terms",
    "crossing_curves",
    "discrepancy_bound",
    "drift_factor",
    "framework_bound",
    "largest_learning_rate",
    "linear_speedup_rounds",
]
