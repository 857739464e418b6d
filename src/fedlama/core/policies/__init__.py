"""The policies, one file each."""

from fedlama.core.policies.budget import Budget
from fedlama.core.policies.fedlama import FedAvg, FedLAMA, canonical
from fedlama.core.policies.fedluar import FedLUAR
from fedlama.core.policies.fedpart import FedPart
from fedlama.core.policies.fixed import Fixed

__all__ = ["Budget", "FedAvg", "FedLAMA", "FedLUAR", "FedPart", "Fixed", "canonical"]
