"""The processes that share a simulation. Nothing else knows that there may be several.

Every collective is one that cannot depend on the number of processes: sums of numbers that add exactly (a value and
zeros, or multiples of one grid) and maxima.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class World:
    """One process, alone: every sum is complete already."""

    rank = 0
    size = 1

    def sum_(self, values: Tensor) -> None:
        """Add `values` up over all processes, in place."""

    def max_(self, values: Tensor) -> None:
        """Take the maximum of `values` over all processes, in place."""

    def share(self, costs: Sequence[float]) -> list[int]:
        """Which of these jobs are this process's: the costliest first, each to whoever has least to do."""
        loads = [0.0] * self.size
        mine: list[int] = []
        for job in sorted(range(len(costs)), key=lambda job: -costs[job]):
            idlest = loads.index(min(loads))
            loads[idlest] += costs[job]
            if idlest == self.rank:
                mine.append(job)
        return sorted(mine)
