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

from fedlama.report.frontier import Place, standing
from fedlama.report.reproduction import long_share

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
                    which = f"{path.stem}: {group.split(', ', 1)[1]}, φ = {numbers[2]}"  # without data and model
                    print(_line([which, *_cells(settings, row, *map(int, numbers.groups()))]))


def _cells(settings: dict[str, dict[str, str]], row: dict[str, str], base: int, factor: int) -> list[str]:
    """Ours, and the paper's in brackets."""
    ours, paper = _values(settings, row, base, factor, ""), _values(settings, row, base, factor, "paper_")
    return [str(len(row["seeds"].split())), *(f"{mine} ({theirs})" for mine, theirs in zip(ours, paper, strict=True))]


def _values(settings: dict[str, dict[str, str]], row: dict[str, str], base: int, factor: int, whose: str) -> list[str]:
    score, cost = f"{whose}accuracy", f"{whose}cost" if whose else "relative_cost"
    own, often, seldom = (
        float(one[score]) for one in (row, *(settings[f"FedAvg({n})"] for n in (base, base * factor)))
    )
    line = [_place(one, whose) for name, one in settings.items() if name.startswith("FedAvg") and one[score]]
    stands = standing(_place(row, whose), sorted(line, key=lambda place: place.total_bytes))
    share = long_share(float(row[cost]), factor)
    gap = "–" if stands is None else _points(stands.gap)
    return [
        f"{100 * float(row[cost]):.2f} %",
        f"{100 * share:.1f} %",
        _points(own - often),
        _points(seldom - often),
        gap,
    ]


def _place(row: dict[str, str], whose: str) -> Place:
    total = float(row["paper_cost"]) if whose else float(row["uplink_bytes"]) + float(row["downlink_bytes"])
    return Place(0, row["setting"], total, float(row[f"{whose}accuracy"]), None, adapts=False)


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}".replace("-", "−")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
