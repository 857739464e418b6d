"""Random federations of quadratics, random policies and random intervals: each a function of its number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlama.base import random_key
from fedlama.core import (
    VARIANTS,
    FedAvg,
    FedLAMA,
    Policy,
    convergence_bound,
    discrepancy_bound,
    framework_bound,
    largest_learning_rate,
)

from .quadratics import Quadratics, Schedule, Trajectory, exact_run


@dataclass(frozen=True)
class Instance:
    """A federation, a policy with its schedule, and where and how long it runs."""

    problem: Quadratics
    policy: Policy
    schedule: Schedule | None  # None: the policy adjusts its intervals itself
    start: np.ndarray
    cycles: int
    dissimilarity: float  # β²
    share_of_limit: float  # of the largest learning rate that a statement allows

    @property
    def interval(self) -> int:
        """τ, the longest interval that can occur."""
        return self.policy.longest_cycle

    @property
    def heterogeneity(self) -> float:
        return self.problem.heterogeneity(self.dissimilarity)

    def run(self, learning_rate: float) -> Trajectory:
        return exact_run(
            self.problem,
            self.policy,
            learning_rate=learning_rate,
            start=self.start,
            cycles=self.cycles,
            schedule=self.schedule,
        )


def draws_of(*place: int | str) -> np.random.Generator:
    """A generator that is a function of its place."""
    return np.random.Generator(np.random.Philox(key=random_key(0, "theory", *place)))


def random_quadratics(draws: np.random.Generator, *, convex: bool = True) -> Quadratics:
    """1 to 6 clients, 1 to 4 layers; from nearly equal clients to unrelated ones, from no noise to much."""
    clients = int(draws.integers(1, 7))
    sizes = tuple(
        int(size) for size in draws.integers(1, 4, size=int(draws.integers(1, 5)))
    )
    width = sum(sizes)
    basis, _ = np.linalg.qr(draws.normal(size=(clients + 1, width, width)))
    eigenvalues = 10 ** draws.uniform(-1.5, 0.5, size=(clients + 1, width))
    if not convex:
        eigenvalues *= draws.choice([-1, 1], size=eigenvalues.shape)
    candidates = np.einsum("ipq,iq,irq->ipr", basis, eigenvalues, basis)
    common, own = candidates[0], candidates[1:]
    difference = draws.choice([0.0, 0.1, 0.5, 1.0])
    hessians = (1 - difference) * common + difference * own
    targets = draws.normal(size=width) + draws.choice([0.0, 0.3, 3.0]) * draws.normal(
        size=(clients, width)
    )
    factor = draws.normal(size=(clients, width, width))
    noise = factor @ factor.transpose(0, 2, 1)
    trace = np.trace(noise, axis1=1, axis2=2)[:, None, None]
    # σ² is the largest: some clients are quieter
    shares = draws.choice([1.0, 0.2], size=(clients, 1, 1))
    noise = draws.choice([0.0, 0.1, 3.0]) * shares * noise / trace
    adaptive = tuple(
        bool(flag) for flag in draws.choice([True, True, False], size=len(sizes))
    )
    return Quadratics(hessians, targets, noise, sizes, adaptive)


def random_policy(draws: np.random.Generator) -> Policy:
    """FedAvg or FedLAMA with any of its rules."""
    base_interval = int(draws.integers(1, 5))
    factor = int(draws.integers(1, 5))
    rule = str(draws.choice(VARIANTS))
    if factor == 1:
        return FedAvg(base_interval)
    if rule == "accelerate":
        return FedLAMA(base_interval * factor, factor, rule)
    return FedLAMA(base_interval, factor, rule)


def random_schedule(policy: Policy, layers: int, number: int) -> Schedule:
    """Any interval that divides the cycle, for any layer, drawn anew for every cycle."""
    divisors = [
        steps
        for steps in range(1, policy.longest_cycle + 1)
        if policy.longest_cycle % steps == 0
    ]

    def schedule(cycle: int) -> tuple[int, ...]:
        chosen = draws_of("schedule", number, cycle).choice(divisors, size=layers)
        return tuple(int(interval) for interval in chosen)

    return schedule


def instance(number: int, *, convex: bool = True) -> Instance:
    """Instance number `number`; every second one follows the policy's own adjustments."""
    draws = draws_of("instance", number)
    problem = random_quadratics(draws, convex=convex)
    policy = random_policy(draws)
    schedule = None
    if number % 2:
        schedule = random_schedule(policy, len(problem.sizes), number)
    dissimilarity = 1.0
    if convex:
        least = max(1.0, problem.smallest_dissimilarity)
        dissimilarity = least * float(draws.choice([1.001, 1.2, 2.0, 10.0]))
    return Instance(
        problem=problem,
        policy=policy,
        schedule=schedule,
        start=problem.optimum
        + draws.choice([0.0, 1.0, 10.0]) * draws.normal(size=problem.width),
        cycles=int(draws.integers(1, 9)),
        dissimilarity=dissimilarity,
        share_of_limit=float(draws.choice([1.0, 0.5, 0.1, 0.01])),
    )


@dataclass(frozen=True)
class Sides:
    """Both sides of an inequality."""

    left: float
    right: float

    @property
    def share(self) -> float:
        """Left divided by right: 1 is tight."""
        if self.right < 1e-20:
            return 1.0
        return self.left / self.right

    def holds(self, scale: float = 0.0) -> bool:
        """left ≤ right, up to the rounding of numbers of this size."""
        rounding = 1e-10 * max(abs(self.left), abs(self.right), scale) + 1e-20
        return self.left <= self.right + rounding


def framework_sides(one: Instance) -> tuple[Sides, float]:
    """Lemma 5.1 at this instance's share of 1/(τL); and the size of its largest term."""
    problem = one.problem
    rate = one.share_of_limit / (one.interval * problem.smoothness)
    told = one.run(rate)
    decrease = told.losses[0] - told.losses[-1]
    right = framework_bound(
        learning_rate=rate,
        smoothness=problem.smoothness,
        interval=one.interval,
        rounds=one.cycles,
        clients=problem.clients,
        gradient_variance=problem.gradient_variance,
        decrease=decrease,
        discrepancy=sum(told.discrepancies),
    )
    largest = 2 * max(map(abs, told.losses)) / (rate * one.interval)
    return Sides(sum(told.squared_gradients[:-1]), right), largest


def discrepancy_sides(one: Instance) -> list[Sides]:
    """Lemma 5.2 in every cycle, at this instance's share of the rate at which A = 0.95."""
    problem = one.problem
    steps = one.interval * (one.interval - 1)
    rate = one.share_of_limit / problem.smoothness
    if steps:
        rate = one.share_of_limit * (0.95 / (2 * steps)) ** 0.5 / problem.smoothness
    told = one.run(rate)
    found = []
    for cycle in range(one.cycles):
        right = discrepancy_bound(
            learning_rate=rate,
            smoothness=problem.smoothness,
            interval=one.interval,
            gradient_variance=problem.gradient_variance,
            heterogeneity=one.heterogeneity,
            squared_gradient=told.squared_gradients[cycle],
            dissimilarity=one.dissimilarity,
        )
        found.append(Sides(told.discrepancies[cycle], right))
    return found


def theorem_sides(one: Instance) -> Sides:
    """Theorem 5.3 at this instance's share of its limit."""
    problem = one.problem
    limit = largest_learning_rate(
        smoothness=problem.smoothness,
        interval=one.interval,
        dissimilarity=one.dissimilarity,
    )
    rate = one.share_of_limit * limit
    told = one.run(rate)
    right = convergence_bound(
        learning_rate=rate,
        smoothness=problem.smoothness,
        interval=one.interval,
        rounds=one.cycles,
        clients=problem.clients,
        initial_gap=problem.gap(one.start),
        gradient_variance=problem.gradient_variance,
        heterogeneity=one.heterogeneity,
        dissimilarity=one.dissimilarity,
    )
    left = sum(told.squared_gradients[:-1]) / one.cycles
    return Sides(left, right)
