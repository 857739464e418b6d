"""Who trains: a cohort drawn anew at every window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedlama.base import InputError, Limits, check_number, check_options, check_whole, random_key
from fedlama.core import Policy


@dataclass(frozen=True)
class Participation:
    """How many clients train at a time, and for how long.

    Who is drawn depends on the seed and on the window, never on the policy: settings that share a window see the same
    clients.

    Arguments:
        active: How many train at a time: a float is a fraction of the population, a whole number a number of clients.
        window: How many steps a cohort stays, a whole number of the policy's cycles (default: one cycle).
    """

    active: float | int = 1.0
    window: Annotated[int, Limits(minimum=1)] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.active, float):
            check_number("participation.active", self.active, above=0)
        else:
            check_whole("participation.active", self.active, minimum=1)
        check_options(self, "participation.")
        if isinstance(self.active, float) and self.active > 1:
            raise InputError(
                f"participation.active = {self.active} is a fraction and must be at most 1.0; "
                f"write a whole number for a number of clients"
            )

    def count(self, population: int) -> int:
        """How many clients of a population of this size train at a time."""
        if isinstance(self.active, float):
            return max(1, math.floor(self.active * population + 0.5))
        if self.active > population:
            raise InputError(f"participation.active is {self.active}, but there are only {population} clients")
        return int(self.active)

    def window_steps(self, policy: Policy) -> int:
        """How long a cohort stays under this policy, in steps."""
        cycle = policy.longest_cycle
        window = self.window
        if window is None:
            window = cycle
        if window % cycle:
            raise InputError(
                f"participation.window = {window} steps must be a whole number of cycles, and a cycle of {policy} is "
                f"{cycle} steps"
            )
        return window

    def cohort(self, population: int, seed: int, window: int, attempt: int = 0) -> list[int]:
        """The clients of one window, in ascending order.

        Arguments:
            population: How many clients there are.
            seed: The run's.
            window: The number of the window, counted from 0.
            attempt: How many cohorts of this window were given up: each attempt draws other clients.
        """
        count = self.count(population)
        if count == population:
            return list(range(population))
        place = [window]
        if attempt:
            place.append(attempt)
        key = random_key(seed, "cohort", *place)
        generator = np.random.Generator(np.random.Philox(key=key))
        drawn = generator.choice(population, count, replace=False, shuffle=False)
        return sorted(drawn.tolist())
