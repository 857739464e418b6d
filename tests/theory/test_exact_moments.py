"""The exact moments themselves: by hand, against sampling without the package, and in their closed forms."""

import numpy as np
import pytest

from fedlama.core import FedAvg, FedLAMA

from .instances import draws_of, instance, random_quadratics
from .quadratics import ExactRun, Quadratics, ServerMomentum, exact_run, quadratic_form


def two_clients(noise=0.0):
    """F_1 = ½(x − 1)², F_2 = (x + 1)²: H = 1 and 2, b = 1 and −1."""
    return Quadratics(
        hessians=np.array([[[1.0]], [[2.0]]]),
        targets=np.array([[1.0], [-1.0]]),
        noise=np.full((2, 1, 1), noise),
        sizes=(1,),
    )


def test_constants_by_hand():
    problem = two_clients(noise=0.25)
    # ∇F = ½(x − 1) + (x + 1) = 1.5x + 0.5, so x* = −1/3; F* = ½[½·16/9 + 4/9] = 2/3
    assert problem.optimum == pytest.approx([-1 / 3])
    assert problem.loss(problem.optimum, np.zeros((1, 1))) == pytest.approx(2 / 3)
    assert problem.smoothness == 2
    assert problem.gradient_variance == 0.25
    # Q = (1 + 4)/2 = 2.5, H̄² = 2.25; g = (−4/3, 4/3), v = (−4/3 + 8/3)/2 = 2/3
    # β² = 2: κ² = 16/9 + (4/9)/(4.5 − 2.5) = 2
    assert problem.smallest_dissimilarity == pytest.approx(2.5 / 2.25)
    assert problem.heterogeneity(2.0) == pytest.approx(2)


def test_two_steps_by_hand():
    told = exact_run(
        two_clients(noise=0.25),
        FedAvg(2),
        learning_rate=0.1,
        start=np.array([1.0]),
        cycles=1,
    )
    # Means: client 1 stays at 1. Client 2: 1 − .1·4 = .6, then .6 − .1·3.2 = .28. Average .64.
    # Variances: .0025 after a step; then .81·.0025 + .0025 = .004525 and .64·.0025 + .0025 = .0041. Average: .008625/4
    assert told.means[1] == pytest.approx([0.64])
    assert told.covariances[1] == pytest.approx(np.array([[0.00215625]]))
    # E‖∇F‖²: (1.5·.64 + .5)² + 2.25·.00215625
    assert told.squared_gradients == pytest.approx([4.0, 1.46**2 + 2.25 * 0.00215625])
    # Σ_j over j = 0, 1: nothing, then half of (.0025) + (.16 + .0025)
    assert told.discrepancies == pytest.approx([0.0825])
    # Before averaging: 1 and .28 are .36 from their mean; the variances add .008625/4
    assert told.before_averaging == pytest.approx([0.36**2 + 0.00215625])


def test_server_momentum_by_hand():
    problem = two_clients()
    told = exact_run(
        problem,
        FedAvg(1),
        learning_rate=0.1,
        start=np.array([1.0]),
        cycles=2,
        server=ServerMomentum(0.5, 0.8),
    )
    # Clients after a step from 1: 1 and .6, mean .8, velocity −.2, u = 1 − .16 = .84
    # From .84: client 1 .84 + .1·.16 = .856, client 2 .84 − .1·2·1.84 = .472, mean .664
    # Velocity ½·(−.2) − .176 = −.276, u = .84 − .8·.276
    assert np.concatenate(told.means) == pytest.approx([1.0, 0.84, 0.6192])


def test_coding_noise_by_hand():
    problem = two_clients()
    told = exact_run(
        problem,
        FedAvg(1),
        learning_rate=0.1,
        start=np.array([1.0]),
        cycles=1,
        coding_noise=lambda squared, size: 0.5 * squared / size,
    )
    # Differences 0 and −.4: variances 0 and .5·.16 = .08; of the mean of two: .02
    assert told.means[1] == pytest.approx([0.8])
    assert told.covariances[1] == pytest.approx(np.array([[0.02]]))


@pytest.mark.parametrize("number", range(40))
def test_dissimilarity_and_heterogeneity_are_the_smallest_that_hold(number):
    draws = draws_of("constants", number)
    problem = random_quadratics(draws)
    dissimilarity = max(1.0, problem.smallest_dissimilarity) * 1.5
    heterogeneity = problem.heterogeneity(dissimilarity)

    def difference(point):
        gradients = np.einsum("ipq,iq->ip", problem.hessians, point - problem.targets)
        mean = gradients.mean(axis=0)
        return (gradients**2).sum(axis=1).mean() - dissimilarity * mean @ mean

    scale = max(heterogeneity, 1e-12)
    for _ in range(50):
        point = problem.optimum + 10 ** draws.uniform(-2, 2) * draws.normal(
            size=problem.width
        )
        assert difference(point) <= heterogeneity + 1e-8 * max(
            scale, abs(difference(point))
        )
    # At the maximiser y = (β²H̄² − Q)⁻¹v it is attained.
    at_optimum = np.einsum(
        "ipq,iq->ip", problem.hessians, problem.optimum - problem.targets
    )
    linear = np.einsum("ipq,iq->ip", problem.hessians, at_optimum).mean(axis=0)
    mean_square = (problem.hessians @ problem.hessians).mean(axis=0)
    curvature = (
        dissimilarity * problem.mean_hessian @ problem.mean_hessian - mean_square
    )
    maximiser = problem.optimum + np.linalg.solve(curvature, linear)
    assert difference(maximiser) == pytest.approx(heterogeneity, rel=1e-6, abs=1e-9)


def test_exact_moments_agree_with_sampling():
    """A naive twin: 20,000 federations at once, in plain arrays, with intervals 2 and 4."""
    one = next(found for found in map(instance, range(100)) if _is_rich(found.problem))
    problem, copies = one.problem, 20_000
    intervals = tuple(2 + 2 * (index % 2) for index in range(len(problem.sizes)))
    rate = 0.4 / problem.smoothness
    told = exact_run(
        problem,
        FedLAMA(2, 2),
        learning_rate=rate,
        start=one.start,
        cycles=2,
        schedule=lambda cycle: intervals,
    )
    draws = draws_of("twin")
    roots = np.linalg.cholesky(problem.noise + 1e-15 * np.eye(problem.width))
    models = np.tile(one.start, (problem.clients, copies, 1))
    for step in range(1, 9):
        noise = np.einsum("ipq,irq->irp", roots, draws.normal(size=models.shape))
        gradients = np.einsum(
            "ipq,irq->irp", problem.hessians, models - problem.targets[:, None]
        )
        models = models - rate * (gradients + noise)
        for layer, interval in zip(problem.layers, intervals, strict=True):
            if step % interval == 0:
                (part,) = layer.slices
                models[:, :, part] = models[:, :, part].mean(axis=0)
    end = models[0]
    error = np.sqrt(np.diag(told.covariances[-1]) / copies)
    assert np.abs(end.mean(axis=0) - told.means[-1]) == pytest.approx(
        0, abs=4 * error.max()
    )
    scale = np.abs(told.covariances[-1]).max()
    assert np.abs(np.cov(end.T) - told.covariances[-1]).max() < 0.05 * scale


def _is_rich(problem):
    return (
        problem.clients >= 3
        and len(problem.sizes) >= 3
        and problem.gradient_variance > 1
    )


def test_the_variance_of_a_quadratic_form():
    # z ~ N(1, 4), M = 3: 3z² has mean 3·(1 + 4) = 15 and variance 9·(2·16 + 4·1·4) = 432
    measured = quadratic_form(np.array([[3.0]]), np.array([1.0]), np.array([[4.0]]))
    assert measured.expectation == 15
    assert measured.variance == 432


def test_the_spread_is_half_the_mean_over_pairs():
    one = instance(11)
    run = ExactRun(one.problem, 0.1 / one.problem.smoothness, one.start)
    for _ in range(3):
        run.local_step()
    count = one.problem.clients
    pairs = [
        run.squared_distance(run.block(a), run.block(b))
        for a in range(count)
        for b in range(count)
    ]
    total = sum(run.spread(layer).expectation for layer in one.problem.layers)
    assert total == pytest.approx(sum(pairs) / (2 * count**2))
