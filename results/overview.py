"""What the scaled-down tables say of the paper's claim, in one table: python results/overview.py results/cpu

Reads the tables that `fedlama reproduce` wrote. Differences are in points of accuracy. The long share is the one that,
long throughout, gives the cost. "At equal bytes" is FedLAMA against FedAvg's settings, between which the accuracy is
taken to change evenly with the logarithm of the bytes; for the paper its costs stand for bytes.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from fedlama.report.numbers.frontier import FrontierPoint, standing
from fedlama.report.numbers.reproduction import long_share

DASH = "–"
HEADINGS = [
    "",
    "seeds",
    "cost",
    "long share implied",
    "FedLAMA(τ', φ) − FedAvg(τ')",
    "FedAvg(φτ') − FedAvg(τ')",
    "FedLAMA − FedAvg at equal bytes",
]


def main(folder: Path) -> None:
    """Print a line for every FedLAMA setting of the tables in this folder."""
    print(_line(HEADINGS))
    print(_line(["---"] + ["---:"] * (len(HEADINGS) - 1)))
    for path in sorted(folder.glob("table*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for group in dict.fromkeys(row["group"] for row in rows):
            settings = {row["setting"]: row for row in rows if row["group"] == group}
            for name, row in settings.items():
                numbers = re.fullmatch(r"FedLAMA\((\d+), (\d+)\)", name)
                if numbers:
                    # Without data and model
                    which = f"{path.stem}: {group.split(', ', 1)[1]}, φ = {numbers[2]}"
                    print(
                        _line(
                            [which, *_cells(settings, row, *map(int, numbers.groups()))]
                        )
                    )


def _cells(
    settings: dict[str, dict[str, str]], row: dict[str, str], base: int, factor: int
) -> list[str]:
    """Ours, and the paper's in brackets."""
    ours, paper = (
        _values(settings, row, base, factor, ""),
        _values(settings, row, base, factor, "paper_"),
    )
    return [
        str(len(row["seeds"].split())),
        *(f"{mine} ({theirs})" for mine, theirs in zip(ours, paper, strict=True)),
    ]


def _values(
    settings: dict[str, dict[str, str]],
    row: dict[str, str],
    base: int,
    factor: int,
    whose: str,
) -> list[str]:
    """A dash where the table has no such setting, or the paper no such number."""
    score, cost = (
        f"{whose}accuracy",
        _number(row, f"{whose}cost" if whose else "relative_cost"),
    )
    often, seldom = (
        settings.get(f"FedAvg({interval})", {}) for interval in (base, base * factor)
    )
    own, fast, slow = (_number(one, score) for one in (row, often, seldom))
    line = [
        _point(one, whose)
        for name, one in settings.items()
        if name.startswith("FedAvg")
    ]
    point, known = _point(row, whose), [one for one in line if one]
    stands = (
        standing(point, sorted(known, key=lambda one: one.total_bytes))
        if point
        else None
    )
    return [
        DASH if cost is None else f"{100 * cost:.2f} %",
        DASH if cost is None else f"{100 * long_share(cost, factor):.1f} %",
        _points(own, fast),
        _points(slow, fast),
        DASH if stands is None else _points(stands.gap, 0.0),
    ]


def _point(row: dict[str, str], whose: str) -> FrontierPoint | None:
    mean = _number(row, f"{whose}accuracy")
    total = (
        _number(row, "paper_cost")
        if whose
        else float(row["uplink_bytes"]) + float(row["downlink_bytes"])
    )
    return (
        None
        if mean is None or total is None
        else FrontierPoint(0, row["setting"], total, mean, None, adapts=False)
    )


def _number(row: dict[str, str], key: str) -> float | None:
    return float(row[key]) if row.get(key) else None


def _points(one: float | None, other: float | None) -> str:
    return (
        DASH
        if one is None or other is None
        else f"{100 * (one - other):+.1f}".replace("-", "−")
    )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
