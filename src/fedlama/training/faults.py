"""Clients that fail, come late or return nonsense: which faults are simulated, and what the server does about them.

Who fails when is a function of the seed, the global step, the attempt and the client, as every draw is: it depends
neither on the number of processes nor on what happened before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from fedlama.base import InputError, Limits, check_options, random_key
from fedlama.server.exclusions import FAILED_DURING, LATE
from fedlama.server.tolerance import MinClients, NormLimit, OnTooFew, Tolerance

Probability = Annotated[float, Limits(minimum=0, maximum=1)]


@dataclass(frozen=True)
class FaultPlace:
    """Where faults are drawn: a round, and what is left of its cycle from where the cohort began it.

    Arguments:
        seed: The run's.
        round: The number of the round, counted from 1.
        attempt: How many cohorts of this window were given up before.
        cycle: The global steps of the cycle, as far as the cohort takes part in it.
        steps: The global steps of the round.
    """

    seed: int
    round: int
    attempt: int
    cycle: range
    steps: range

    @property
    def begins_cycle(self) -> bool:
        """Whether the cohort begins a cycle with this round."""
        return self.steps.start == self.cycle.start


@dataclass(frozen=True)
class Faults:
    """What may happen to a client, as probabilities, and what the server tolerates.

    Whoever is excluded takes no part again before the next cycle.

    Arguments:
        fail_before: Probability that a client fails before a cycle, and takes no part in it.
        fail_during: Probability that it fails at some step of a cycle.
        straggle: Probability that it misses the deadline after a round.
        corrupt: Probability that it returns a broken update after a round: NaN, infinite or, with a `norm_limit`, too
            large.
        exclude_nonfinite: Whether the server excludes updates that are not finite; otherwise they end the run.
        norm_limit: The largest L2 norm of an update of the due layers; clients above it are excluded (default: none).
        min_clients: The fewest clients that are averaged.
        on_too_few: What happens where fewer are left: "repeat" the round with new clients, or "stop" the run.
    """

    fail_before: Probability = 0.0
    fail_during: Probability = 0.0
    straggle: Probability = 0.0
    corrupt: Probability = 0.0
    exclude_nonfinite: bool = True
    norm_limit: NormLimit | None = None
    min_clients: MinClients = 1
    on_too_few: OnTooFew = "repeat"

    def __post_init__(self) -> None:
        check_options(self, "faults.")
        if self.corrupt and not self.exclude_nonfinite:
            raise InputError(
                f"faults.corrupt = {self.corrupt} returns NaN, which would end the run: "
                f"leave faults.exclude_nonfinite at true"
            )

    @property
    def tolerance(self) -> Tolerance:
        """What the server tolerates."""
        return Tolerance(
            min_clients=self.min_clients,
            on_too_few=self.on_too_few,
            norm_limit=self.norm_limit,
        )

    def fails_before(self, place: FaultPlace, client: int) -> bool:
        """Whether a client takes no part at all in the cycle of this `place`.

        Arguments:
            place: A round of the cycle, and the attempt at it.
            client: Its number.
        """
        begins = place.cycle.start
        return _chance(
            probability=self.fail_before,
            place=place,
            purpose="before",
            step=begins,
            client=client,
        )

    def misses(self, place: FaultPlace, client: int) -> str | None:
        """Why the server has no update of this client after the round of this `place`, if so.

        Arguments:
            place: The round, and the attempt at it.
            client: Its number.
        """
        cycle = place.cycle
        fails = _chance(
            probability=self.fail_during,
            place=place,
            purpose="during",
            step=cycle.start,
            client=client,
        )
        if fails:
            drawn = _uniform(place, "when", cycle.start, client)
            failing_step = cycle[int(drawn * len(cycle))]
            # In another round of the cycle it failed before, or it will fail later
            if failing_step in place.steps:
                return FAILED_DURING

        begins = place.steps.start
        is_late = _chance(
            probability=self.straggle,
            place=place,
            purpose="straggle",
            step=begins,
            client=client,
        )
        if is_late:
            return LATE
        return None

    def broken_number(self, place: FaultPlace, client: int) -> float | None:
        """What stands in the update of a client that returns a broken one after the round of this `place`.

        Arguments:
            place: The round, and the attempt at it.
            client: Its number.
        """
        begins = place.steps.start
        is_broken = _chance(
            probability=self.corrupt,
            place=place,
            purpose="corrupt",
            step=begins,
            client=client,
        )
        if not is_broken:
            return None
        numbers = [math.nan, math.inf]
        # Without a limit nobody would notice a number that is merely large
        if self.norm_limit:
            numbers.append(10 * self.norm_limit)
        drawn = _uniform(place, "how", begins, client)
        chosen = int(drawn * len(numbers))
        return numbers[chosen]


def _chance(
    probability: float, place: FaultPlace, purpose: str, step: int, client: int
) -> bool:
    # What cannot happen is not drawn: most runs have no faults of most kinds
    if probability <= 0:
        return False
    return _uniform(place, purpose, step, client) < probability


def _uniform(place: FaultPlace, purpose: str, step: int, client: int) -> float:
    """From 0 to below 1."""
    key = random_key(
        place.seed,
        f"faults {purpose}",
        step,
        place.attempt,
        client,
    )
    bits = key % 2**53  # as many as a float has
    return bits / 2**53
