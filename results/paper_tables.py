"""Fill in the paper's tables from those of finished reproductions: python results/paper_tables.py

`fedlama reproduce table4 --group 1 --precision bfloat16` and its kin write a table's numbers as CSV, and
`results/collect.py` brings them here. Between `<!-- paper NAME -->` and `<!-- end -->`, in this folder's README.md and
in the project's, stands the table of NAME.csv, such as `cpu-bfloat16/table4-group1`. Between `<!-- summary -->` and
`<!-- end -->` stands what all tables of SUMMED_UP have found, beside the paper's numbers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import overview

from fedlama.report.tables.paired import points

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parent / "README.md")
HEADINGS = (
    "setting",
    "accuracy",
    "difference",
    "of moving averages",
    "paper: difference",
    "at equal bytes",
    "cost",
    "paper: cost",
    "seeds",
)
UNKNOWN = "–"
# The tables of eight clients at a time, and what the summary calls them; those that are not there are left out
SUMMED_UP = {
    "cpu-bfloat16/table4-group1": (
        "[CIFAR-10, α = 0.5 in place of 0.1](#eight-of-128-clients-table-4-25--active)"
    ),
    "cpu-1500-steps-bfloat16/table4-group2": (
        "[CIFAR-10, α = 1](#eight-of-128-clients-table-4-α--1)"
    ),
    "cpu-1500-steps-bfloat16/table1": (
        "[CIFAR-10, IID](#eight-of-128-clients-table-1-iid)"
    ),
    "cpu/table3-group1": ("[UNIPEN-62 by writer](#eight-writers-at-a-time-table-3)"),
    "cpu-960-steps-bfloat16/table2": (
        "[half of CIFAR-100, IID](#eight-of-128-clients-table-2-cifar-100)"
    ),
}

Row = Mapping[str, str]


def table(file: Path) -> str:
    """Markdown: differences in points to the first setting, and to FedAvg at equal bytes, seed by seed ± error."""
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    first = rows[0]
    lines = [
        f"| {' | '.join(HEADINGS)} |",
        "|---" + "|---:" * (len(HEADINGS) - 1) + "|",
    ]
    for row in rows:
        lines.append(f"| {' | '.join(_cells(row, first, rows))} |")
    return "\n".join(lines)


def _cells(row: Row, first: Row, rows: Sequence[Row]) -> list[str]:
    printed = UNKNOWN
    if row["paper_accuracy"] and row is not first:
        lost = float(row["paper_accuracy"]) - float(first["paper_accuracy"])
        printed = points(lost)
    return [
        row["setting"],
        _percent(row["accuracy"]),
        _difference(row["difference"], row["difference_error"]),
        _difference(
            row.get("average_difference", ""), row.get("average_difference_error", "")
        ),
        printed,
        _at_equal_bytes(row, rows),
        _percent(row["relative_cost"]),
        _percent(row["paper_cost"]),
        ", ".join(row["seeds"].split()),
    ]


def _at_equal_bytes(row: Row, rows: Sequence[Row]) -> str:
    """To FedAvg's line, which goes through the settings that have all of these seeds; the others are named."""
    text = _difference(
        row.get("equal_bytes_difference", ""), row.get("equal_bytes_error", "")
    )
    seeds = set(row.get("equal_bytes_seeds", "").split())
    left_out: list[str] = []
    for other in rows:
        has_all = seeds <= set(other["seeds"].split())
        if other["setting"].startswith("FedAvg") and not has_all:
            left_out.append(other["setting"])
    if left_out:
        text += f", without {' and '.join(left_out)}"
    return text


def _percent(share: str) -> str:
    if not share:
        return UNKNOWN
    return f"{100 * float(share):.2f} %"


def _difference(mean: str, error: str) -> str:
    if not mean:
        return UNKNOWN
    text = points(float(mean))
    if error:
        text += f" ± {100 * float(error):.2f}"
    return text


def filled(page: str) -> str:
    """The page with the tables that there are files for."""

    def fresh(found: re.Match[str]) -> str:
        file = HERE / f"{found['name']}.csv"
        if not file.exists():
            return found[0]
        return f"{found['begin']}\n{table(file)}\n{found['end']}"

    pattern = (
        r"(?P<begin><!-- paper (?P<name>[\w/-]+) -->)\n.*?\n?(?P<end><!-- end -->)"
    )
    with_tables = re.sub(pattern, fresh, page, flags=re.DOTALL)

    def summary(found: re.Match[str]) -> str:
        return f"{found['begin']}\n{summed_up()}\n{found['end']}"

    place = r"(?P<begin><!-- summary -->)\n.*?\n?(?P<end><!-- end -->)"
    return re.sub(place, summary, with_tables, flags=re.DOTALL)


def summed_up() -> str:
    """Markdown: a line for every FedLAMA setting of these tables, the paper's numbers in brackets."""
    tables: dict[Path, str] = {}
    for name, title in SUMMED_UP.items():
        file = HERE / f"{name}.csv"
        if file.exists():
            tables[file] = title
    return "\n".join(overview.table(tables, with_groups=False))


if __name__ == "__main__":
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text), encoding="utf-8")
