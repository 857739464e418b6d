"""What each table and figure of the paper takes, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedlama.base.times import rough_time
from fedlama.paper.costs import CostLine
from fedlama.paper.recipe import SCALES
from fedlama.report.words.formats import UNKNOWN

TOO_LONG = "very long"


def cost_table(lines: Sequence[CostLine]) -> Table:
    """A row per table or figure, a column per scale."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("name")
    table.add_column("what", overflow="fold")
    table.add_column("runs", justify="right")
    for scale in SCALES:
        table.add_column(Text(f"--scale\n{scale}"), justify="right", no_wrap=True)

    for line in lines:
        runs = str(line.costs["cpu"].runs)
        times = [_time(line, scale) for scale in SCALES]
        table.add_row(line.name, Text(line.title), runs, *times)
    return table


def _time(line: CostLine, scale: str) -> str:
    cost = line.costs.get(scale)
    if cost is None:
        return UNKNOWN
    if cost.seconds is None:
        return TOO_LONG
    return rough_time(cost.seconds)
