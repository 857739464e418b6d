"""Clients with quadratic objectives, and the exact mean and covariance of everything that layer-wise averaging does.

F_i(x) = ½(x − b_i)ᵀH_i(x − b_i), and a stochastic gradient is ∇F_i(x) plus noise of zero mean and known covariance. So
local steps and averages are linear maps, and the mean and the covariance of all copies together follow exactly: nothing
is sampled. When layers are averaged is decided by the package's own policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedlama.core import Evidence, Layer, Policy


@dataclass(frozen=True)
class Quadratics:
    """m clients; `sizes` are the sizes of the layers, which lie one after another."""

    hessians: np.ndarray  # [m, P, P], symmetric
    targets: np.ndarray  # [m, P], the b_i
    noise: np.ndarray  # [m, P, P], covariance of each client's gradient noise
    sizes: tuple[int, ...]
    adaptive: tuple[bool, ...] | None = None

    @property
    def clients(self) -> int:
        return len(self.hessians)

    @property
    def width(self) -> int:
        return self.hessians.shape[1]

    @property
    def layers(self) -> tuple[Layer, ...]:
        flags = self.adaptive or (True,) * len(self.sizes)
        found = []
        start = 0
        for index, size in enumerate(self.sizes):
            found.append(
                Layer(
                    f"layer{index}", (slice(start, start + size),), size, flags[index]
                )
            )
            start += size
        return tuple(found)

    @property
    def mean_hessian(self) -> np.ndarray:
        return self.hessians.mean(axis=0)

    @property
    def optimum(self) -> np.ndarray:
        """Where ∇F = 0."""
        pulls = np.einsum("ipq,iq->ip", self.hessians, self.targets)
        return np.linalg.solve(self.mean_hessian, pulls.mean(axis=0))

    @property
    def smoothness(self) -> float:
        """L: the largest magnitude of an eigenvalue of any client's Hessian."""
        return float(np.abs(np.linalg.eigvalsh(self.hessians)).max())

    @property
    def gradient_variance(self) -> float:
        """σ²: the largest trace of a client's noise covariance."""
        return float(np.trace(self.noise, axis1=1, axis2=2).max())

    @property
    def smallest_dissimilarity(self) -> float:
        """λmax(H̄⁻¹QH̄⁻¹), Q = mean H_i²: every β² above it, and not below 1, comes with a finite κ²."""
        inverse = np.linalg.inv(self.mean_hessian)
        mean_square = (self.hessians @ self.hessians).mean(axis=0)
        return float(np.linalg.eigvalsh(inverse @ mean_square @ inverse).max())

    def heterogeneity(self, dissimilarity: float) -> float:
        """The smallest κ² for this β²: the supremum over x of mean‖∇F_i(x)‖² − β²‖∇F(x)‖².

        With y = x − x*, g_i = ∇F_i(x*) and v = mean H_i g_i that difference is mean‖g_i‖² + 2vᵀy − yᵀ(β²H̄² − Q)y.
        """
        at_optimum = np.einsum("ipq,iq->ip", self.hessians, self.optimum - self.targets)
        linear = np.einsum("ipq,iq->ip", self.hessians, at_optimum).mean(axis=0)
        mean_square = (self.hessians @ self.hessians).mean(axis=0)
        curvature = dissimilarity * self.mean_hessian @ self.mean_hessian - mean_square
        return float(
            (at_optimum**2).sum(axis=1).mean()
            + linear @ np.linalg.solve(curvature, linear)
        )

    def loss(self, mean: np.ndarray, covariance: np.ndarray) -> float:
        """E F(u) for a random u."""
        apart = mean - self.targets
        at_mean = 0.5 * np.einsum("ip,ipq,iq->i", apart, self.hessians, apart).mean()
        return float(at_mean + 0.5 * np.trace(self.mean_hessian @ covariance))

    def squared_gradient(self, mean: np.ndarray, covariance: np.ndarray) -> float:
        """E‖∇F(u)‖² for a random u."""
        gradient = np.einsum("ipq,iq->ip", self.hessians, mean - self.targets).mean(
            axis=0
        )
        return float(
            gradient @ gradient
            + np.trace(self.mean_hessian @ covariance @ self.mean_hessian)
        )

    def gap(self, point: np.ndarray) -> float:
        """F(point) − F*."""
        apart = point - self.optimum
        return float(0.5 * apart @ self.mean_hessian @ apart)


@dataclass(frozen=True)
class ServerMomentum:
    """velocity ← beta^periods·velocity + (mean − anchor), layer ← anchor + rate·velocity.

    `periods` is how many base intervals passed since the layer's last average. Plain averaging is beta 0, rate 1.
    """

    beta: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True)
class Measured:
    """A random quantity: what it is on average, and its variance where the noise is Gaussian."""

    expectation: float
    variance: float


def quadratic_form(
    form: np.ndarray, mean: np.ndarray, covariance: np.ndarray
) -> Measured:
    """zᵀMz for a Gaussian z and a symmetric M."""
    spread_form = form @ covariance
    expectation = mean @ form @ mean + np.trace(spread_form)
    variance = (
        2 * np.trace(spread_form @ spread_form)
        + 4 * mean @ form @ covariance @ form @ mean
    )
    return Measured(float(expectation), float(variance))


@dataclass
class Trajectory:
    """What happened, cycle by cycle: everything is an expectation."""

    # E‖∇F(u_t)‖², t = 0 … T
    squared_gradients: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # E F(u_t), t = 0 … T
    # Σ_{j=0}^{τ−1} mean_i E‖x_j^i − u_t‖², t = 0 … T−1
    discrepancies: list[float] = field(default_factory=list)
    # mean_i E‖x^i − u‖² as each cycle ends
    before_averaging: list[float] = field(default_factory=list)
    # Of each round: mean_i ‖x_l^i − u_l‖², due layers
    spreads: list[dict[int, Measured]] = field(default_factory=list)
    # in force during each cycle
    intervals: list[tuple[int, ...]] = field(default_factory=list)
    means: list[np.ndarray] = field(default_factory=list)  # E u_t
    covariances: list[np.ndarray] = field(default_factory=list)  # Cov u_t


Schedule = Callable[[int], tuple[int, ...]]


class ExactRun:
    """The joint mean and covariance of m local models, u_t, the layers' anchors and the server's velocity.

    These are m + 3 blocks of P numbers. Every step of the algorithm maps them linearly and may add independent noise.
    """

    def __init__(
        self,
        problem: Quadratics,
        learning_rate: float,
        start: np.ndarray,
        server: ServerMomentum | None = None,
        coding_noise: Callable[[float, int], float] | None = None,
    ) -> None:
        """`coding_noise(E‖Δ‖², size)` is the variance that an unbiased codec adds to each number of a layer."""
        self.problem = problem
        self.learning_rate = learning_rate
        self.server = server or ServerMomentum()
        self.coding_noise = coding_noise
        count = problem.clients
        self.start_block = count
        self.anchor_block = count + 1
        self.velocity_block = count + 2
        blocks = [start] * (count + 2) + [np.zeros_like(start)]
        self.mean = np.concatenate(blocks)
        self.covariance = np.zeros((len(self.mean), len(self.mean)))
        self._prepare_step()

    def block(self, index: int) -> slice:
        """Where a block's numbers are."""
        width = self.problem.width
        return slice(index * width, (index + 1) * width)

    def _prepare_step(self) -> None:
        problem, rate = self.problem, self.learning_rate
        total = len(self.mean)
        self.step_map = np.eye(total)
        self.step_offset = np.zeros(total)
        self.step_noise = np.zeros((total, total))
        for client in range(problem.clients):
            place = self.block(client)
            hessian = problem.hessians[client]
            self.step_map[place, place] -= rate * hessian
            self.step_offset[place] = rate * hessian @ problem.targets[client]
            self.step_noise[place, place] = rate**2 * problem.noise[client]

    def local_step(self) -> None:
        """x_i ← x_i − η(∇F_i(x_i) + noise), at every client."""
        self.mean = self.step_map @ self.mean + self.step_offset
        self.covariance = (
            self.step_map @ self.covariance @ self.step_map.T + self.step_noise
        )

    def spread(self, layer: Layer) -> Measured:
        """mean_i ‖x_l^i − x̄_l‖² of a layer, before it is averaged."""
        count = self.problem.clients
        columns = [
            np.arange(len(self.mean))[self._columns(client, layer)]
            for client in range(count)
        ]
        places = np.concatenate(columns)
        centring = np.eye(count) - 1 / count
        form = np.kron(centring / count, np.eye(layer.size))
        measured = quadratic_form(
            form, self.mean[places], self.covariance[np.ix_(places, places)]
        )
        # Where copies are equal, rounding can leave a little less than nothing.
        return replace(measured, expectation=max(0.0, measured.expectation))

    def average(self, periods: Mapping[int, float]) -> None:
        """The due layers: mean over clients, the server's rule, and every copy becomes the result.

        `periods` has a layer's base intervals since its last average.
        """
        mapping = np.eye(len(self.mean))
        noise = np.zeros_like(self.covariance)
        for index, passed in periods.items():
            layer = self.problem.layers[index]
            self._average_layer(layer, mapping, kept=self.server.beta**passed)
            if self.coding_noise:
                self._add_coding_noise(layer, noise)
        self.mean = mapping @ self.mean
        # The codec's error is part of what a client's layer looks like to the server, so it goes through the same map.
        self.covariance = mapping @ (self.covariance + noise) @ mapping.T

    def _average_layer(self, layer: Layer, mapping: np.ndarray, *, kept: float) -> None:
        count = self.problem.clients
        identity = np.eye(layer.size)
        anchor = self._columns(self.anchor_block, layer)
        velocity = self._columns(self.velocity_block, layer)
        new_velocity = np.zeros((layer.size, len(self.mean)))
        new_velocity[:, velocity] = kept * identity
        new_velocity[:, anchor] = -identity
        for client in range(count):
            new_velocity[:, self._columns(client, layer)] = identity / count
        new_layer = self.server.rate * new_velocity
        new_layer[:, anchor] += identity
        mapping[velocity, :] = new_velocity
        mapping[anchor, :] = new_layer
        for client in range(count):
            mapping[self._columns(client, layer), :] = new_layer

    def _add_coding_noise(self, layer: Layer, noise: np.ndarray) -> None:
        assert self.coding_noise, "only with a codec"
        for client in range(self.problem.clients):
            place = self._columns(client, layer)
            anchor = self._columns(self.anchor_block, layer)
            variance = self.coding_noise(
                self.squared_distance(place, anchor), layer.size
            )
            noise[place, place] += variance * np.eye(layer.size)

    def begin_cycle(self) -> None:
        """Remember u_t: at a cycle's start all copies are equal."""
        mapping = np.eye(len(self.mean))
        mapping[self.block(self.start_block), :] = mapping[self.block(0), :]
        self.mean = mapping @ self.mean
        self.covariance = mapping @ self.covariance @ mapping.T

    def distance_from_start(self) -> float:
        """mean_i E‖x^i − u_t‖²."""
        total = 0.0
        for client in range(self.problem.clients):
            total += self.squared_distance(
                self.block(client), self.block(self.start_block)
            )
        return total / self.problem.clients

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of client 0's model, which is the global one where all copies are equal."""
        place = self.block(0)
        return self.mean[place], self.covariance[place, place]

    def _columns(self, block: int, layer: Layer) -> slice:
        (part,) = layer.slices
        start = block * self.problem.width
        return slice(start + part.start, start + part.stop)

    def squared_distance(self, first: slice, second: slice) -> float:
        """E‖z_first − z_second‖² for two parts of the joint state z."""
        apart = self.mean[first] - self.mean[second]
        own = np.trace(self.covariance[first, first]) + np.trace(
            self.covariance[second, second]
        )
        shared = np.trace(self.covariance[first, second])
        return float(apart @ apart + own - 2 * shared)


def exact_run(
    problem: Quadratics,
    policy: Policy,
    *,
    learning_rate: float,
    start: np.ndarray,
    cycles: int,
    schedule: Schedule | None = None,
    server: ServerMomentum | None = None,
    coding_noise: Callable[[float, int], float] | None = None,
) -> Trajectory:
    """Algorithm 1 in expectation: the policy says what is due, and adjusts its intervals by the expected distances.

    `schedule(t)` gives the intervals of cycle t in place of the policy's own choice.
    """
    run = ExactRun(problem, learning_rate, start, server, coding_noise)
    layers = problem.layers
    iterations = cycles * policy.longest_cycle
    state = policy.start(layers)
    told = Trajectory()
    _note_global_model(told, run)
    for cycle in range(cycles):
        if schedule:
            state = replace(state, intervals=schedule(cycle))
        told.intervals.append(state.intervals)
        run.begin_cycle()
        distance = 0.0
        ended = False
        while not ended:
            plan = policy.next(state, iterations)
            for _ in range(plan.steps):
                distance += run.distance_from_start()
                run.local_step()
            spreads = {index: run.spread(layers[index]) for index in plan.due}
            expected = {index: spread.expectation for index, spread in spreads.items()}
            after = state.step + plan.steps
            run.average(
                {
                    index: (after - state.synchronised_at[index]) / policy.base_interval
                    for index in plan.due
                }
            )
            state = policy.observe(
                state, plan, Evidence(expected, clients=problem.clients), layers
            )
            told.spreads.append(spreads)
            ended = plan.ends_cycle
        told.before_averaging.append(sum(expected.values()))
        told.discrepancies.append(distance)
        _note_global_model(told, run)
    return told


def _note_global_model(told: Trajectory, run: ExactRun) -> None:
    mean, covariance = run.moments()
    told.means.append(mean)
    told.covariances.append(covariance)
    told.losses.append(run.problem.loss(mean, covariance))
    told.squared_gradients.append(run.problem.squared_gradient(mean, covariance))
