"""Each layer's interval over the cycles of a run, as spans of cycles with one interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.run.recorded import RecordedRun


@dataclass(frozen=True)
class Span:
    """A layer's interval from one cycle to another, both counted."""

    layer: str
    first: int
    last: int
    interval: int


@dataclass(frozen=True)
class IntervalMap:
    """One run's spans, layer by layer in the model's order."""

    look: int  # of the setting
    label: str
    seed: int
    layers: list[str]
    spans: list[Span]

    @property
    def intervals(self) -> list[int]:
        """The intervals that occur, the shortest first."""
        return sorted({span.interval for span in self.spans})

    @property
    def is_even(self) -> bool:
        """Whether every layer had the same interval all the time."""
        return len(self.intervals) == 1

    @property
    def cycles(self) -> int:
        """How many cycles the run has."""
        return max(span.last for span in self.spans)


def interval_maps(comparison: RunComparison) -> list[IntervalMap]:
    """One for each setting but FedAvg, which has one interval, from the first of its runs."""
    found: list[IntervalMap] = []
    for setting in comparison.settings:
        if setting.config.policy.fedavg_interval is not None:
            continue
        one = _interval_map(setting)
        if one is not None:
            found.append(one)
    return found


def _interval_map(setting: ComparedSetting) -> IntervalMap | None:
    run = setting.runs[0]
    names = [layer.name for layer in setting.layers]
    cycles = _intervals_by_cycle(run)
    if not cycles or not names:
        return None
    counts = {len(intervals) for intervals in cycles.values()}
    if counts != {len(names)}:
        return None

    spans: list[Span] = []
    for number, name in enumerate(names):
        of_layer: dict[int, int] = {}
        for cycle, intervals in cycles.items():
            of_layer[cycle] = intervals[number]
        spans += _spans(name, of_layer)
    return IntervalMap(
        look=setting.look,
        label=setting.label,
        seed=run.seed,
        layers=names,
        spans=spans,
    )


def _intervals_by_cycle(run: RecordedRun) -> dict[int, list[int]]:
    """Intervals change at the end of a cycle only, so any round of it has them."""
    intervals: dict[int, list[int]] = {}
    for record in run.records:
        intervals[record.cycle] = record.intervals
    return intervals


def _spans(layer: str, intervals: Mapping[int, int]) -> list[Span]:
    """Neighbouring cycles of one interval become a span."""
    spans: list[Span] = []
    in_order = sorted(intervals)
    by_interval = groupby(in_order, key=lambda cycle: intervals[cycle])
    for interval, members in by_interval:
        cycles = list(members)
        span = Span(layer, cycles[0], cycles[-1], interval)
        spans.append(span)
    return spans
