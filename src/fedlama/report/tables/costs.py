"""What each table and figure of the paper takes, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from fedlama.base.times import rough_time
from fedlama.paper.costs import CostLine
from fedlama.paper.recipe import SCALES
from fedlama.report.words.formats import UNKNOWN, plural

TOO_LONG = "very long"


def cost_table(lines: Sequence[CostLine]) -> Table:
    """A row per table or figure, a column per scale."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("name")
    table.add_column("what", overflow="fold")
    for scale in SCALES:
        table.add_column(Text(f"--scale\n{scale}"), justify="right", no_wrap=True)

    for line in lines:
        cells = [_time_and_runs(line, scale) for scale in SCALES]
        table.add_row(line.name, Text(line.title), *cells)
    return table


def _time_and_runs(line: CostLine, scale: str) -> str:
    """How long it takes at a scale, and below it how many runs that is."""
    cost = line.costs.get(scale)
    if cost is None:
        return UNKNOWN
    time = TOO_LONG
    if cost.seconds is not None:
        time = rough_time(cost.seconds)
    return f"{time}\n{plural(cost.runs, 'run')}"
