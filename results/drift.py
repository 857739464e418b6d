"""What layer-wise intervals could gain at equal bytes by the theory: python results/drift.py RUN…

For every run that averages all layers together: 1/(1 + CV²), the predicted drift of the best intervals relative to one
interval for all layers, from the median of every layer's discrepancy over the second half of the run. CV is the
size-weighted coefficient of variation of √d_l. Below it the course: the same over parts of the run, because layers may
drift apart very differently at its beginning.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from fedlama.base import InputError
from fedlama.diagnose.layers import spread_of_roots
from fedlama.study.runs import load_run
from fedlama.training.records import Record

# Where a part begins and ends, in eighths of the run's rounds
PARTS = {
    "first eighth": (0, 1),
    "second eighth": (1, 2),
    "second quarter": (2, 4),
    "third quarter": (4, 6),
    "last quarter": (6, 8),
}
SECOND_HALF = (4, 8)


def main(path: Path) -> None:
    """Print what one run shows, and the course over it.

    Arguments:
        path: The run's folder.
    """
    run = load_run(path)
    if run.summary is None:
        raise InputError(f"{path} is not finished")
    if not run.records:
        raise InputError(
            f"{path} has no records of its rounds (rounds.jsonl), which discrepancies are read from"
        )
    sizes = [layer.size for layer in run.summary.layers]
    squared = spread(part_of(run.records, SECOND_HALF), sizes)
    if squared is None:
        raise InputError(
            f"{path} has layers without a discrepancy in its second half: name a run that averages all layers together"
        )
    print(f"{path}: {text(squared)}")
    for name, eighths in PARTS.items():
        squared = spread(part_of(run.records, eighths), sizes)
        if squared is not None:
            print(f"  {name}: {text(squared)}")


def part_of(records: Sequence[Record], eighths: tuple[int, int]) -> Sequence[Record]:
    """The records of a part of a run.

    Arguments:
        records: Of all rounds.
        eighths: Where the part begins and ends.
    """
    begin, end = (len(records) * eighth // 8 for eighth in eighths)
    return records[begin:end]


def spread(records: Sequence[Record], sizes: Sequence[int]) -> float | None:
    """CV² from the median of every layer's discrepancy; None where a layer has none.

    Arguments:
        records: Of the rounds to look at.
        sizes: Of the layers.
    """
    medians: list[float] = []
    for layer in range(len(sizes)):
        values = [record.discrepancy[layer] for record in records]
        known = [value for value in values if value is not None]
        if not known:
            return None
        medians.append(statistics.median(known))
    return spread_of_roots(medians, sizes) ** 2


def text(squared: float) -> str:
    """CV² and what follows from it.

    Arguments:
        squared: CV².
    """
    return f"CV² = {squared:.3f}, 1/(1 + CV²) = {1 / (1 + squared):.3f}"


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            main(Path(name))
    except InputError as error:
        print(f"fedlama: {error}", file=sys.stderr)
        sys.exit(2)
