"""What layer-wise intervals could gain at equal bytes by the theory: python results/drift.py RUN…

For every run that averages all layers together: 1/(1 + CV²), the predicted drift of the best intervals relative to one
interval for all layers, from the median of every layer's discrepancy over the second half of the run. CV is the
size-weighted coefficient of variation of √d_l. A second line has CV² of every eighth of the run, as layers drift
otherwise at its start.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fedlama.core.policies.budget import spread_of_roots
from fedlama.study.runs import load_run
from fedlama.training.records import Record

PARTS = 8


def spread(records: Sequence[Record], sizes: Sequence[int]) -> float:
    """CV² of these rounds."""
    discrepancy: list[float] = []
    for layer in range(len(sizes)):
        values = [record.discrepancy[layer] for record in records]
        discrepancy.append(
            statistics.median(value for value in values if value is not None)
        )
    return spread_of_roots(discrepancy, sizes)


def main(path: Path) -> None:
    """Print two lines."""
    run = load_run(path)
    assert run.summary is not None, f"{path} is not finished"
    sizes = [layer.size for layer in run.summary.layers]
    count = len(run.records)
    squared = spread(run.records[count // 2 :], sizes)
    print(f"{path}: CV² = {squared:.3f}, 1/(1 + CV²) = {1 / (1 + squared):.3f}")
    if count < PARTS:
        return
    ends = [count * part // PARTS for part in range(PARTS + 1)]
    parts: list[str] = []
    for begin, end in pairwise(ends):
        parts.append(f"{spread(run.records[begin:end], sizes):.2f}")
    print(f"    by eighths of the run: {', '.join(parts)}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(Path(name))
