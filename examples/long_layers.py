"""Which layers a run lengthened, cycle by cycle.

    python examples/long_layers.py runs/mine

Reads a run directory: for every cycle the share of the parameters that is averaged less often, and the kernels that
could be but are not; then for every kernel how often it was.
"""

import sys
from pathlib import Path

from fedlama.base import InputError
from fedlama.run.recorded import read_run


def main(folder: Path) -> None:
    try:
        run = read_run(folder)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if not run.records or run.summary is None:
        print(
            f"{folder} has no rounds.jsonl: the records of its rounds were not kept, or it is no run directory",
            file=sys.stderr,
        )
        sys.exit(2)
    layers = run.summary.layers
    total = sum(layer.size for layer in layers)
    cycles: dict[int, list[int]] = {}
    for record in run.records:
        cycles.setdefault(record.cycle, record.intervals)
    for cycle, intervals in cycles.items():
        long = [
            layer
            for layer, interval in zip(layers, intervals, strict=True)
            if interval > min(intervals)
        ]
        short = [layer.name for layer in layers if layer.adaptive and layer not in long]
        share = sum(layer.size for layer in long) / total
        print(
            f"cycle {cycle}: {share:.1%} of the parameters long; short kernels: {', '.join(short)}"
        )
    adjusted = [
        intervals for intervals in cycles.values() if max(intervals) > min(intervals)
    ]
    print(f"\nOf the {len(adjusted)} cycles with long layers, each kernel was long in")
    for index, layer in enumerate(layers):
        if layer.adaptive:
            count = sum(intervals[index] > min(intervals) for intervals in adjusted)
            print(f"{count:5}  {layer.name} ({layer.size:,} parameters)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
