"""Intervals that never changed, in a sentence: a chart of them would have one colour."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.report.numbers.intervals import IntervalMap


def even_intervals(maps: Sequence[IntervalMap]) -> list[str]:
    """A sentence for each setting whose layers all had one interval."""
    sentences: list[str] = []
    for one in maps:
        if one.is_even:
            (interval,) = one.intervals
            sentences.append(
                f"{one.label} averaged every layer every {interval} steps, from first to last."
            )
    return sentences
