"""Numbers that can be coded: finite float32 on the CPU, and their squared norm."""

from __future__ import annotations

import torch
from torch import Tensor

from fedlama.base import InputError

# Numbers of a large tensor that are computed with at a time, so that they stay in the cache
SLAB = 1 << 16


def as_numbers(x: Tensor) -> Tensor:
    """x as finite float32 numbers on the CPU."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = getattr(x, "dtype", type(x).__name__)
        raise InputError(f"only tensors of floats can be coded, not {kind}")
    values = x.detach().to("cpu", torch.float32)
    check_finite(values)
    return values


def check_finite(values: Tensor) -> None:
    """Refuse infinities and NaN: no code for a difference has room for them."""
    # A sum is not finite if one of its terms is not; only if it is not, look closer (large numbers may overflow).
    if not bool(values.sum().isfinite()) and not bool(values.isfinite().all()):
        raise InputError("numbers that are not finite cannot be coded")


def squared_norm(values: Tensor) -> float:
    """‖·‖² of a flat tensor, added up in float64."""
    total = 0.0
    for part in values.split(SLAB):
        exact = part.double()
        total += float(torch.dot(exact, exact))
    return total
