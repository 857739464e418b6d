"""The runtime for torch.distributed programs: each rank is a client."""

from fedlama.averager.averager import LayerwiseModelAverager

__all__ = ["LayerwiseModelAverager"]
