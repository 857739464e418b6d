"""Numbers that can be coded: finite float32 on the CPU, and their squared norm."""

from __future__ import annotations

import torch
from torch import Tensor

from fedlama.base import InputError

# Numbers of a large tensor that are computed with at a time, so that they stay in the cache
SLAB = 1 << 16


class NotCodableError(InputError):
    """Numbers that no message can hold: not finite, or too large. A training that diverges comes to them."""


def as_numbers(x: Tensor) -> Tensor:
    """x as finite float32 numbers on the CPU."""
    has_floats = isinstance(x, Tensor) and x.is_floating_point()
    if not has_floats:
        kind = getattr(x, "dtype", type(x).__name__)
        raise InputError(f"only tensors of floats can be coded, not {kind}")
    values = x.detach().to("cpu", torch.float32)
    check_finite(values)
    return values


def check_finite(values: Tensor) -> None:
    """Refuse infinities and NaN: no code for a difference has room for them."""
    # A sum is not finite if one of its terms is not; only if it is not, look closer (large numbers may overflow).
    total = values.sum()
    if bool(total.isfinite()):
        return
    are_finite = values.isfinite().all()
    if not bool(are_finite):
        raise NotCodableError("numbers that are not finite cannot be coded")


def squared_norm(values: Tensor) -> float:
    """‖·‖² of a flat tensor, added up in float64."""
    total = 0.0
    for part in values.split(SLAB):
        exact = part.double()
        square = torch.dot(exact, exact)
        total += float(square)
    return total
