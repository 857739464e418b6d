"""Who trains: a cohort drawn anew at every window."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from fedlama.base import InputError, Limits, Positive, check_options, random_key
from fedlama.core import Policy, policy_within


@dataclass(frozen=True)
class Participation:
    """Who trains at a time: a number of clients, or a fraction of them (default: all).

    Who is drawn depends on the seed and on the window, never on the policy: settings that share a window see the same
    clients.

    Arguments:
        clients: How many clients train at a time.
        fraction: Which share of the clients trains at a time, above 0 and at most 1, in place of their number.
        window: For how many steps a cohort stays, a whole number of the policy's cycles (default: one cycle).
    """

    clients: Annotated[int, Limits(minimum=1)] | None = None
    window: Positive | None = None
    fraction: Annotated[float, Limits(above=0, maximum=1)] | None = field(
        default=None, kw_only=True
    )

    def __post_init__(self) -> None:
        if isinstance(self.clients, float):
            raise InputError(
                f"participation.clients must be a whole number, not {self.clients}: for a share of the clients "
                f"write Participation(fraction={self.clients})"
            )
        check_options(self, "participation.")
        if self.clients is not None and self.fraction is not None:
            raise InputError("participation: give clients= or fraction=, not both")
        if self.clients is None:
            fraction = 1.0
            if self.fraction is not None:
                fraction = float(self.fraction)
            object.__setattr__(self, "fraction", fraction)

    @staticmethod
    def from_active(active: float | int, window: int | None = None) -> Participation:
        """As configuration files write it in one key.

        Arguments:
            active: How many train at a time: a float is a fraction, a whole number a number of clients.
            window: For how many steps a cohort stays (default: one cycle).
        """
        if isinstance(active, float):
            return Participation(fraction=active, window=window)
        return Participation(clients=active, window=window)

    @property
    def active(self) -> float | int:
        """The same in one number, as configuration files have it."""
        if self.fraction is not None:
            return self.fraction
        assert self.clients is not None
        return int(self.clients)

    def count(self, population: int) -> int:
        """How many clients of a population of this size train at a time.

        Arguments:
            population: How many clients there are.
        """
        if self.clients is None:
            assert self.fraction is not None
            share = self.fraction * population
            # A half counts as a client: round() would take two and a half for two
            nearest = math.floor(share + 0.5)
            return max(1, nearest)
        if self.clients > population:
            raise InputError(
                f"participation: {self.clients} clients, but there are only {population} clients (in a configuration: "
                f"participation.active)"
            )
        return int(self.clients)

    def window_steps(self, policy: Policy) -> int:
        """How long a cohort stays under this policy, in steps.

        Arguments:
            policy: The window is a whole number of its cycles.
        """
        window = self.window
        if window is None:
            return policy.longest_cycle
        policy = policy_within(policy, window)
        cycle = policy.longest_cycle
        if window % cycle:
            raise InputError(
                f"window = {window} steps must be a whole number of cycles, and a cycle of {policy} is "
                f"{cycle} steps"
            )
        return window

    def cohort(
        self, population: int, seed: int, window: int, attempt: int = 0
    ) -> list[int]:
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
        # The first attempt's key is that of a run without faults: both draw the same clients
        if attempt:
            place.append(attempt)
        key = random_key(seed, "cohort", *place)
        generator = np.random.Generator(np.random.Philox(key=key))
        drawn = generator.choice(
            population,
            count,
            replace=False,
            shuffle=False,
        )
        return sorted(drawn.tolist())


def is_between_windows(step: int, window_steps: int) -> bool:
    """Whether after this step the clients of one window have left, and those of the next have not come.

    Arguments:
        step: Global steps taken so far.
        window_steps: How many steps a cohort stays.
    """
    return step % window_steps == 0


ALL_CLIENTS = Participation()
