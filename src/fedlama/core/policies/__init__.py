"""The policies, one file each."""

from fedlama.core.policies.fedlama import FedAvg, FedLAMA

__all__ = ["FedAvg", "FedLAMA"]
