"""What `fedlama diagnose --json` predicted beside what runs gave.

    python results/diagnosed.py NAME=DIAGNOSIS.json:RUNS …

RUNS is a study's folder with SETTING/seedN/summary.json and config.toml. Accuracies are means over seeds, differences
are in points. "At equal bytes" is against FedAvg's settings, between which the accuracy is taken to change evenly with
the logarithm of the bytes.
"""

from __future__ import annotations

import json
import math
import sys
import tomllib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

DASH = "–"
HEADINGS = [
    "federation",
    "setting",
    "seeds",
    "cost predicted",
    "cost in runs",
    "discrepancy at equal bytes, predicted",
    "accuracy − FedAvg(τ')",
    "accuracy − FedAvg at equal bytes",
]


@dataclass(frozen=True)
class Outcome:
    """A setting's runs: means over seeds."""

    seeds: int
    accuracy: float
    cost: float
    uplink_bytes: float


def main(arguments: list[str]) -> None:
    """Print a line for every FedLAMA setting that was both predicted and run."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        raise SystemExit(2)
    print(_line(HEADINGS))
    print(_line(["---", "---"] + ["---:"] * (len(HEADINGS) - 2)))
    for argument in arguments:
        name, _, places = argument.partition("=")
        diagnosis, _, runs = places.partition(":")
        for cells in compare(
            json.loads(Path(diagnosis).read_text()), outcomes(Path(runs))
        ):
            print(_line([name, *cells]))


def outcomes(folder: Path) -> dict[tuple[str, int, int], Outcome]:
    """(kind, base interval, factor) → what its runs gave."""
    found: dict[tuple[str, int, int], list[dict]] = {}
    for path in sorted(folder.glob("*/seed*/summary.json")):
        policy = tomllib.loads((path.parent / "config.toml").read_text())["policy"]
        key = (policy["kind"], policy["base_interval"], policy["increase_factor"])
        found.setdefault(key, []).append(json.loads(path.read_text()))
    means = {}
    for key, summaries in found.items():
        means[key] = Outcome(
            seeds=len(summaries),
            accuracy=_mean(summaries, "accuracy"),
            cost=_mean(summaries, "cost"),
            uplink_bytes=_mean(summaries, "uplink_bytes"),
        )
    return means


def compare(
    diagnosis: dict, runs: dict[tuple[str, int, int], Outcome]
) -> list[list[str]]:
    """A row of cells for every FedLAMA setting; predictions come in the order FedAvg, φ = 2, 4, 8."""
    base = diagnosis["base_interval"]
    often = runs.get(("fedavg", base, 1))
    line = [one for (kind, _, _), one in runs.items() if kind == "fedavg"]
    rows = []
    for factor, prediction in zip(
        (2, 4, 8), diagnosis["predictions"][1:4], strict=True
    ):
        run = runs.get(("fedlama", base, factor))
        if run is None:
            continue
        beside = accuracy_at(run.uplink_bytes, line)
        rows.append(
            [
                f"FedLAMA({base}, {factor})",
                str(run.seeds),
                f"{100 * prediction['cost']:.1f} %",
                f"{100 * run.cost:.1f} %",
                f"{prediction['at_equal_bytes']:.2f} ×",
                _points(run.accuracy, often.accuracy if often else None),
                _points(run.accuracy, beside),
            ]
        )
    return rows


def accuracy_at(uplink_bytes: float, line: list[Outcome]) -> float | None:
    """FedAvg's accuracy at these bytes; none beyond its settings."""
    line = sorted(line, key=lambda one: one.uplink_bytes)
    for low, high in pairwise(line):
        if low.uplink_bytes <= uplink_bytes <= high.uplink_bytes:
            position = math.log(uplink_bytes / low.uplink_bytes) / math.log(
                high.uplink_bytes / low.uplink_bytes
            )
            return low.accuracy + position * (high.accuracy - low.accuracy)
    return None


def _mean(summaries: list[dict], key: str) -> float:
    return sum(summary[key] for summary in summaries) / len(summaries)


def _points(one: float, other: float | None) -> str:
    if other is None:
        return DASH
    return f"{100 * (one - other):+.1f}".replace("-", "−")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(sys.argv[1:])
