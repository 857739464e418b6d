"""L: the largest Hessian eigenvalue in magnitude, by power iteration with Hessian-vector products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedlama.base import random_key
from fedlama.diagnose.probe import Hessian, Probe

MAX_PRODUCTS = 20
ASYMMETRY = 0.01  # of the Hessian's size: float32 alone gives a thousandth of that
TOLERANCE = 0.01  # relative change at which an eigenvalue counts as found


class NoCurvatureError(Exception):
    """L cannot be estimated; says why in a phrase."""


def smoothness(
    probe: Probe, clients: Sequence[int], advance: Callable[[float], None]
) -> float:
    """The largest over these clients: assumption 1 asks for a constant that holds for each of them."""
    largest = 0.0
    for client in clients:
        found = largest_eigenvalue(probe, client)
        largest = max(largest, found)
        advance(1 / len(clients))
    return largest


def largest_eigenvalue(probe: Probe, client: int) -> float:
    """The magnitude of the dominant eigenvalue of one client's Hessian, to about one per cent."""
    try:
        hessian = probe.hessian(client)
        key = random_key(probe.seed, "diagnose curvature", client)
        draws = torch.Generator().manual_seed(key % 2**63)
        vector = torch.randn(hessian.width, generator=draws)
        other = torch.randn(hessian.width, generator=draws)
        if not _is_symmetric(hessian, vector, other):
            raise NoCurvatureError(
                "the loss cannot be differentiated twice: its second derivatives do not agree"
            )

        vector /= vector.norm()
        found = 0.0
        for _ in range(MAX_PRODUCTS):
            product = hessian.times(vector)
            length = float(product.norm())
            if not product.isfinite().all():
                raise NoCurvatureError(
                    f"a Hessian-vector product of client {client} is not finite"
                )
            if length == 0:
                return found
            vector = product / length
            # ‖Hv‖ approaches the magnitude of the dominant eigenvalue from below, whatever its sign.
            if abs(length - found) <= TOLERANCE * length:
                return length
            found = length
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise NoCurvatureError(
            f"the loss cannot be differentiated twice ({reason})"
        ) from None
    return found


def _is_symmetric(hessian: Hessian, one: Tensor, other: Tensor) -> bool:
    """Whether vᵀHw = wᵀHv; torch leaves derivatives out, without a word, behind a function differentiable once.

    For normal v and w both are about as large as ‖H‖_F, which ‖Hv‖ is, too.
    """
    product = hessian.times(one)
    other_product = hessian.times(other)
    forth = float(torch.dot(other, product))
    back = float(torch.dot(one, other_product))

    length = float(product.norm())
    other_length = float(other_product.norm())
    size = max(length, other_length)

    # Asked this way round, because NaN is larger than no number: a product that is not finite passes here, and is
    # called by its name later.
    is_asymmetric = abs(forth - back) > ASYMMETRY * size
    return not is_asymmetric
