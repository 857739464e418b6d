"""σ², β² and κ²: how noisy gradients are, and how much clients differ, from a few gradients of a few clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fedlama.data import Batches
from fedlama.diagnose.probe import Probe

BATCHES = 6  # of each client
# A larger β² would say that ‖∇F‖² is too small to compare with: that is κ²'s part
MAX_DISSIMILARITY = 10.0


@dataclass(frozen=True)
class GradientMoments:
    """What gradients look like at one point; all but `loss` are squared gradients.

    Arguments:
        loss: the mean loss over the clients' batches.
        noise: σ², the mean over clients of a stochastic gradient's variance.
        largest_noise: the largest client's.
        clients: (1/m) Σ_i ‖∇F_i‖², corrected for noise.
        mean: ‖∇F‖² of the mean over all clients, corrected for noise and for having looked at some clients only.
    """

    loss: float
    noise: float
    largest_noise: float
    clients: float
    mean: float


def gradient_moments(
    probe: Probe,
    clients: Sequence[int],
    population: int,
    advance: Callable[[float], None],
) -> GradientMoments:
    """Look at several batches of each of these clients, of a population of so many."""
    losses: list[float] = []
    noises: list[float] = []
    squares: list[float] = []  # ‖∇F_i‖², unbiased
    raw_squares = 0.0
    total = torch.zeros(probe.width)
    count = len(clients)
    for client in clients:
        one = _client_moments(probe, client, advance, 1 / count)
        losses.append(one.loss)
        noises.append(one.noise)
        total += one.mean

        # A mean of so many noisy gradients is longer than the true one by its own variance.
        raw = squared_norm(one.mean)
        variance_of_mean = one.noise / one.batches
        raw_squares += raw
        squares.append(raw - variance_of_mean)

    mean_square = sum(squares) / count
    if count == 1:
        between = mean_square
    else:
        # Two different clients' noises are independent, so their inner product is unbiased as it is.
        pairs = count * (count - 1)
        between = (squared_norm(total) - raw_squares) / pairs

    # ‖∇F‖² is a mean over all pairs of the population: one in N pairs is a client with itself.
    mean = mean_square / population + between * (1 - 1 / population)
    return GradientMoments(
        loss=sum(losses) / count,
        noise=sum(noises) / count,
        largest_noise=max(noises),
        clients=max(mean_square, 0.0),
        mean=max(mean, 0.0),
    )


@dataclass(frozen=True)
class _ClientMoments:
    mean: torch.Tensor
    noise: float  # the variance of one stochastic gradient
    loss: float
    batches: int


def _client_moments(
    probe: Probe, client: int, advance: Callable[[float], None], share: float
) -> _ClientMoments:
    count = BATCHES
    if _sees_all_at_once(probe.batches, client):
        count = 1  # there is no noise to be seen

    total = torch.zeros(probe.width)
    square = 0.0
    loss = 0.0
    for step in range(count):
        gradient = probe.gradient(client, step)
        total += gradient.vector
        square += squared_norm(gradient.vector)
        loss += gradient.loss
        advance(share / count)

    mean = total / count
    noise = 0.0
    if count > 1:
        # Σ‖g − ḡ‖² = Σ‖g‖² − n‖ḡ‖², which rounding can leave a little below zero
        about_mean = square - count * squared_norm(mean)
        noise = max(about_mean, 0.0) / (count - 1)
    return _ClientMoments(
        mean=mean,
        noise=noise,
        loss=loss / count,
        batches=count,
    )


def _sees_all_at_once(batches: Batches, client: int) -> bool:
    """Whether a client's only batch is all of its data, and the same at every step."""
    samples = batches.shards.size_of(client)
    is_one_batch = samples <= batches.batch_size
    return is_one_batch and batches.data.augment is None


def squared_norm(vector: torch.Tensor) -> float:
    """‖v‖², added up in float64."""
    return float(vector.double().square().sum())


def dissimilarity(points: Sequence[GradientMoments]) -> tuple[float, float]:
    """β² and κ² with (1/m) Σ‖∇F_i‖² ≤ β²‖∇F‖² + κ² at every point that was looked at.

    Many pairs do. Here κ² is the variance between clients that is there at every point, and β² takes the rest, unless
    it would have to be larger than `MAX_DISSIMILARITY`.
    """
    always = min(point.clients - point.mean for point in points)
    always = max(always, 0.0)

    needed = 1.0
    for point in points:
        beyond = point.clients - always
        if beyond > MAX_DISSIMILARITY * point.mean:
            needed = MAX_DISSIMILARITY
        elif point.mean > 0:
            needed = max(needed, beyond / point.mean)

    # The inequality, solved for κ² where it asks for most
    left = max(point.clients - needed * point.mean for point in points)
    left = max(left, 0.0)
    return needed, left
