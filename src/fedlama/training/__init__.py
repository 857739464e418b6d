"""The one training loop, and `simulate`, which sets it up."""

from fedlama.training.participation import Participation
from fedlama.training.records import LayerSummary, Record, Result
from fedlama.training.simulation import simulate

__all__ = ["LayerSummary", "Participation", "Record", "Result", "simulate"]
