"""What the scaled-down tables say of the paper's claim, in one table: python results/overview.py results/cpu

Reads the tables that `fedlama reproduce` wrote. Differences are in points of accuracy, seed by seed with their standard
error, over the seeds that both settings have; an older table without such columns has means, which are compared where
they are over the same seeds. The long share is the one that, long throughout, gives the cost. "At equal bytes" is
FedLAMA against FedAvg's settings, between which the accuracy is taken to change evenly with the logarithm of the bytes;
for the paper its costs stand for bytes.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping, Sequence
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

Row = Mapping[str, str]


def main(folder: Path) -> None:
    """Print a line for every FedLAMA setting of the tables in this folder."""
    tables = {path: path.stem for path in sorted(folder.glob("table*.csv"))}
    print("\n".join(table(tables, with_groups=True)))


def table(tables: Mapping[Path, str], *, with_groups: bool) -> list[str]:
    """The lines of Markdown.

    Arguments:
        tables: The tables' numbers, and what each is called here.
        with_groups: Whether the titles of their groups are said, too.
    """
    lines = [
        _line(HEADINGS),
        _line(["---"] + ["---:"] * (len(HEADINGS) - 1)),
    ]
    for path, title in tables.items():
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for group in dict.fromkeys(row["group"] for row in rows):
            label = title
            if with_groups:
                label += f": {_of_group(group)}"
            own = [row for row in rows if row["group"] == group]
            lines += _group_lines(label, own)
    return lines


def _group_lines(label: str, rows: Sequence[Row]) -> list[str]:
    """One for each FedLAMA setting of a group."""
    settings = {row["setting"]: row for row in rows}
    lines: list[str] = []
    for name, row in settings.items():
        numbers = re.fullmatch(r"FedLAMA\((\d+), (\d+)\)", name)
        if numbers is None:
            continue
        base, factor = map(int, numbers.groups())
        cells = _cells(settings, row, base, factor)
        lines.append(_line([f"{label}, φ = {factor}", *cells]))
    return lines


def _of_group(title: str) -> str:
    """From the share of active clients on: data and model, whose names may hold commas, are those of the table."""
    found = re.search(r"\d+ % active.*", title)
    if found is None:
        return title
    return found[0]


def _cells(settings: Mapping[str, Row], row: Row, base: int, factor: int) -> list[str]:
    """Ours, and the paper's in brackets."""
    often = settings.get(f"FedAvg({base})", {})
    seldom = settings.get(f"FedAvg({base * factor})", {})
    line = [one for name, one in settings.items() if name.startswith("FedAvg")]
    ours = [
        *_costs(_number(row, "relative_cost"), factor),
        _difference(row, often),
        _difference(seldom, often),
        _at_equal_bytes(row, line),
    ]
    papers = [
        *_costs(_number(row, "paper_cost"), factor),
        _points(_number(row, "paper_accuracy"), _number(often, "paper_accuracy")),
        _points(_number(seldom, "paper_accuracy"), _number(often, "paper_accuracy")),
        _papers_at_equal_bytes(row, line),
    ]
    cells = [str(len(row["seeds"].split()))]
    for mine, theirs in zip(ours, papers, strict=True):
        cells.append(f"{mine} ({theirs})")
    return cells


def _costs(cost: float | None, factor: int) -> list[str]:
    """A dash where the paper has no such number."""
    if cost is None:
        return [DASH, DASH]
    return [f"{100 * cost:.2f} %", f"{100 * long_share(cost, factor):.1f} %"]


def _difference(row: Row, baseline: Row) -> str:
    """To the table's first setting: as the table has it, seed by seed, otherwise of means over the same seeds."""
    if "difference" in row:
        if baseline.get("difference"):
            # That of the table is another one.
            return DASH
        return _with_error(row, "difference", "difference_error")
    if row.get("seeds") != baseline.get("seeds"):
        return DASH
    return _points(_number(row, "accuracy"), _number(baseline, "accuracy"))


def _at_equal_bytes(row: Row, line: list[Row]) -> str:
    if "equal_bytes_difference" in row:
        return _with_error(row, "equal_bytes_difference", "equal_bytes_error")
    if {one["seeds"] for one in line} != {row["seeds"]}:
        return DASH
    points: list[FrontierPoint] = []
    for one in [row, *line]:
        total = float(one["uplink_bytes"]) + float(one["downlink_bytes"])
        points.append(_point(one, total, float(one["accuracy"])))
    return _gap(points)


def _papers_at_equal_bytes(row: Row, line: list[Row]) -> str:
    points: list[FrontierPoint] = []
    for one in [row, *line]:
        cost = _number(one, "paper_cost")
        accuracy = _number(one, "paper_accuracy")
        if cost is not None and accuracy is not None:
            points.append(_point(one, cost, accuracy))
        elif one is row:
            return DASH
    return _gap(points)


def _gap(points: list[FrontierPoint]) -> str:
    """Of the first to a line through the others."""
    own, *others = points
    stands = standing(own, sorted(others, key=lambda one: one.total_bytes))
    if stands is None:
        return DASH
    return _points(stands.gap, 0.0)


def _point(row: Row, total: float, mean: float) -> FrontierPoint:
    return FrontierPoint(0, row["setting"], total, mean, None, adapts=False)


def _with_error(row: Row, mean_key: str, error_key: str) -> str:
    """`+5.06 ± 0.35`; with one seed there is no error."""
    mean = _number(row, mean_key)
    error = _number(row, error_key)
    if mean is None:
        return DASH
    text = f"{100 * mean:+.2f}".replace("-", "−")
    if error is not None:
        text += f" ± {100 * error:.2f}"
    return text


def _number(row: Row, key: str) -> float | None:
    text = row.get(key)
    if not text:
        return None
    return float(text)


def _points(one: float | None, other: float | None) -> str:
    if one is None or other is None:
        return DASH
    return f"{100 * (one - other):+.1f}".replace("-", "−")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
