"""The paper in plain Python: which layers are due, how intervals change, what it cost.

Read beside "Layer-wise Adaptive Model Aggregation for Scalable Federated Learning" (Lee, Zhang, He, Avestimehr).
Suggested order: `layers`, `intervals` (Algorithm 2), `policy`, `rounds` and `policies` (Algorithm 1), `ledger` (Eq. 5),
`bounds` (Theorem 5.3), `speedup` (Remark 1).
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
)
from fedlama.core.interval_checks import VARIANTS, Variant
from fedlama.core.intervals import adjust_intervals, crossing_curves
from fedlama.core.layers import Layer, Layout, TensorEntry
from fedlama.core.ledger import BYTES_PER_NUMBER, Ledger, Message, Traffic, total_of
from fedlama.core.policies import (
    Budget,
    FedAvg,
    FedLAMA,
    FedLUAR,
    FedPart,
    Fixed,
    canonical,
)
from fedlama.core.policy import (
    FROZEN,
    RECYCLED,
    Evidence,
    Policy,
    PolicyState,
    RoundPlan,
    Shortening,
    Windowed,
    asks_for_movement,
    policy_within,
    shortest_interval,
)
from fedlama.core.rounds import advance, plan_by_intervals
from fedlama.core.speedup import linear_speedup_rounds

__all__ = [
    "BYTES_PER_NUMBER",
    "FROZEN",
    "RECYCLED",
    "VARIANTS",
    "BoundTerms",
    "Budget",
    "Evidence",
    "FedAvg",
    "FedLAMA",
    "FedLUAR",
    "FedPart",
    "Fixed",
    "Layer",
    "Layout",
    "Ledger",
    "Message",
    "Policy",
    "PolicyState",
    "RoundPlan",
    "Shortening",
    "TensorEntry",
    "Traffic",
    "Variant",
    "Windowed",
    "adjust_intervals",
    "advance",
    "asks_for_movement",
    "canonical",
    "convergence_bound",
    "convergence_terms",
    "crossing_curves",
    "discrepancy_bound",
    "drift_factor",
    "framework_bound",
    "largest_learning_rate",
    "linear_speedup_rounds",
    "plan_by_intervals",
    "policy_within",
    "shortest_interval",
    "total_of",
]
