"""The one training loop, and `simulate`, which sets it up."""

from fedlama.training.evaluation import Metric
from fedlama.training.faults import Faults
from fedlama.training.participation import Participation
from fedlama.training.records import LayerSummary, Record, TrainingResult
from fedlama.training.simulation import simulate

__all__ = [
    "Faults",
    "LayerSummary",
    "Metric",
    "Participation",
    "Record",
    "TrainingResult",
    "simulate",
]
