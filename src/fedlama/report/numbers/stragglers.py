"""Clients of unequal speed: how long a round waits for the slowest of them."""

from __future__ import annotations

import math


def slowest_of(clients: int, sigma: float) -> float:
    """E[max of m] for m independent factors exp(σ Z): 1 for the median client, exactly 1 where nobody straggles.

    The density of the largest of m normal draws is m φ(z) Φ(z)^(m−1). The integrand vanishes at both ends, so the
    trapezium rule is exact to rounding, and unlike a simulation it needs no seed.

    Arguments:
        clients: m, how many draw.
        sigma: σ of the factors' logarithm.
    """
    if sigma == 0:
        return 1.0

    steps = 4000
    low = -10.0
    high = 10.0 + sigma
    width = (high - low) / steps

    total = 0.0
    for index in range(steps + 1):
        z = low + width * index
        # exp(σ z) and φ(z) in one exponential: apart, the first would be very large where the second is very small.
        exponent = sigma * z - z * z / 2
        density = clients * math.exp(exponent) / math.sqrt(2 * math.pi)
        # All others are faster.
        others_below = _normal(z) ** (clients - 1)
        total += density * others_below
    return width * total


def _normal(z: float) -> float:
    """Φ, the distribution of a standard normal draw."""
    scaled = -z / math.sqrt(2)
    return math.erfc(scaled) / 2
