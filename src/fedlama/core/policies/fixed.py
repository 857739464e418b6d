"""Intervals by hand: the baseline of every policy that chooses them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fedlama.base import MAX_WHOLE, InputError, Limits, check_options, shown
from fedlama.core.layers import Layer
from fedlama.core.policies.patterns import pattern_of_each
from fedlama.core.policy import (
    Evidence,
    PolicyState,
    RoundPlan,
)
from fedlama.core.rounds import advance, plan_by_intervals


@dataclass(frozen=True)
class Fixed:
    """Every layer has the interval that you give it, from the first step to the last.

    Arguments:
        base_interval: τ', the interval of layers without one of their own, in steps.
        intervals: Pattern of layers' names → their interval in steps, a whole number of base intervals. Of several
            patterns that a name matches the first counts; one that is left without a layer is refused.
    """

    base_interval: Annotated[int, Limits(minimum=1)]
    # A mapping has no hash; the interval is enough of one.
    intervals: Mapping[str, Annotated[int, Limits(minimum=1)]] = field(hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.intervals, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"intervals must be a table of pattern → interval, not {shown(self.intervals)}"
            )
        object.__setattr__(self, "intervals", _FixedTable(self.intervals))
        check_options(self)
        for pattern, interval in self.intervals.items():
            if interval % self.base_interval:
                raise InputError(
                    f"intervals of {shown(pattern)} must be a multiple of base_interval = {self.base_interval}, "
                    f"not {interval}"
                )
        if self.longest_cycle > MAX_WHOLE:
            raise InputError(
                f"intervals have a common multiple of at most {MAX_WHOLE} steps, not {self.longest_cycle}"
            )

    @property
    def uses(self) -> tuple[str, ...]:
        """Nothing, not even the spread; that is in the records all the same."""
        return ()

    @property
    def longest_cycle(self) -> int:
        """The least common multiple of all intervals."""
        return math.lcm(self.base_interval, *self.intervals.values())

    def start(self, layers: Sequence[Layer]) -> PolicyState:
        """The state before the first step: every layer at its interval."""
        # Of several patterns the first counts, as they were written.
        own = pattern_of_each("policy.intervals", self.intervals, layers)
        by_pattern = list(self.intervals.values())
        intervals: list[int] = []
        for number in own:
            interval = self.base_interval
            if number is not None:
                interval = by_pattern[number]
            intervals.append(interval)
        return PolicyState.at_start(intervals)

    def next(self, state: PolicyState, iterations: int) -> RoundPlan:
        """The next round of a run of `iterations` steps: it lasts until the next layer falls due."""
        return plan_by_intervals(state, iterations, self.longest_cycle)

    def observe(
        self,
        state: PolicyState,
        plan: RoundPlan,
        evidence: Evidence,
        layers: Sequence[Layer],
    ) -> PolicyState:
        """The state after a round; no interval changes."""
        return advance(state, plan, evidence, layers)

    def __str__(self) -> str:
        arguments = [str(self.base_interval)]
        for pattern, interval in self.intervals.items():
            entry = f"{pattern}: {interval}"
            arguments.append(entry)
        listed = ", ".join(arguments)
        return f"Fixed({listed})"


class _FixedTable(Mapping[str, int]):
    """A table that nobody can change; unlike `MappingProxyType` it can be copied and pickled."""

    def __init__(self, table: Mapping[str, int]) -> None:
        self._table = dict(table)

    def __getitem__(self, name: str) -> int:
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return repr(self._table)
