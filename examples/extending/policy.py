"""A policy of your own: kernels that drift less than the median wait for a second interval."""

from dataclasses import dataclass, replace
from statistics import median

import fedlama
from fedlama.core import advance, plan_by_intervals


@dataclass(frozen=True)
class HalfWait:
    base_interval: int
    uses: tuple[str, ...] = ()  # of the evidence, beside the spread that d_l is made of

    @property
    def longest_cycle(self):
        return 2 * self.base_interval

    def start(self, layers):
        return fedlama.FedAvg(self.base_interval).start(layers)

    def next(self, state, iterations):
        return plan_by_intervals(state, iterations, self.longest_cycle)

    def observe(self, state, plan, evidence, layers):
        # Time has passed, and the due layers have a new d_l
        after = advance(state, plan, evidence, layers)
        if not plan.adjusts:
            return after
        middle = median(after.discrepancy)
        intervals = []
        for layer, drift in zip(layers, after.discrepancy, strict=True):
            waits = layer.adaptive and drift < middle
            intervals.append(self.longest_cycle if waits else self.base_interval)
        return replace(after, intervals=tuple(intervals))
