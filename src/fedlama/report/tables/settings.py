"""The comparison as a table, one row per setting: in the terminal, and in Markdown."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from fedlama.report.numbers.comparison import Comparison, Setting
from fedlama.report.tables.grids import markdown_line, markdown_text
from fedlama.report.words.formats import human_bytes, percent, share_text, spread_text
from fedlama.report.words.notes import (
    cost_heading,
    notes,
    rate_text,
    seeds_text,
    shown_cost,
    shows_uplink_share,
    uplink_heading,
    uplink_share,
)


def headings(comparison: Comparison) -> list[str]:
    """The columns of the main table."""
    names = [
        "setting",
        comparison.metric,
        cost_heading(comparison),
        "uplink",
    ]
    if shows_uplink_share(comparison):
        names.append(uplink_heading(comparison))
    names.append("downlink")
    if _rates_differ(comparison):
        names.append("learning rate")
    return [*names, "seeds"]


def cells(setting: Setting, comparison: Comparison) -> list[str]:
    """One row of the main table."""
    row = [
        setting.label,
        spread_text(comparison.score(setting), comparison.metric),
        percent(shown_cost(setting, comparison)),
        human_bytes(setting.uplink_bytes),
    ]
    if shows_uplink_share(comparison):
        share = uplink_share(setting, comparison)
        row.append(share_text(share))

    row.append(human_bytes(setting.downlink_bytes))
    if _rates_differ(comparison):
        row.append(rate_text(setting))
    return [*row, seeds_text(setting)]


def _rates_differ(comparison: Comparison) -> bool:
    rates = {setting.config.local.learning_rate for setting in comparison.settings}
    return len(rates) > 1


def terminal_table(comparison: Comparison) -> Table:
    """The main table for `rich.console.Console.print`."""
    table = Table(
        caption=Text("\n".join(notes(comparison))),
        caption_justify="left",
        header_style="bold",
    )
    first, *numbers = headings(comparison)
    table.add_column(first, overflow="fold")
    for heading in numbers:
        # What a cost is a share of may be long: on a line of its own it widens the column less.
        broken = heading.replace(", ", ",\n", 1)
        table.add_column(Text(broken), justify="right", no_wrap=True)

    for setting in comparison.settings:
        # Text: a label is never markup.
        row = [Text(cell) for cell in cells(setting, comparison)]
        table.add_row(*row)
    return table


def markdown_table(comparison: Comparison) -> str:
    """The main table as Markdown, with its notes below."""
    names = headings(comparison)
    lines = [
        markdown_line([markdown_text(name) for name in names]),
        markdown_line(["---", *["---:"] * (len(names) - 1)]),
    ]
    for setting in comparison.settings:
        row = [markdown_text(cell) for cell in cells(setting, comparison)]
        lines.append(markdown_line(row))

    said = [markdown_text(note) for note in notes(comparison)]
    lines.append("")
    lines.append(" ".join(said))
    return "\n".join(lines) + "\n"
