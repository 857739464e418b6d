"""What layer-wise intervals could gain at equal bytes by the theory: python results/drift.py RUN…

For every run that averages all layers together: 1/(1 + CV²), the predicted drift of the best intervals relative to one
interval for all layers, from the median of every layer's discrepancy over the second half of the run. CV is the
size-weighted coefficient of variation of √d_l.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from fedlama.core.policies.budget import spread_of_roots
from fedlama.study.runs import load_run


def main(path: Path) -> None:
    """Print one line."""
    run = load_run(path)
    assert run.summary is not None, f"{path} is not finished"
    records = run.records[len(run.records) // 2 :]
    discrepancy: list[float] = []
    for layer in range(len(run.summary.layers)):
        values = [record.discrepancy[layer] for record in records]
        discrepancy.append(
            statistics.median(value for value in values if value is not None)
        )
    sizes = [layer.size for layer in run.summary.layers]
    squared = spread_of_roots(discrepancy, sizes)
    print(f"{path}: CV² = {squared:.3f}, 1/(1 + CV²) = {1 / (1 + squared):.3f}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(Path(name))
