"""The comparison as a table, one row per setting: in the terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.pairs import paired_difference
from fedlama.report.tables.grids import (
    MAX_WHOLE_NAME,
    markdown_line,
    markdown_rule,
    markdown_text,
    wrapped,
)
from fedlama.report.words.formats import human_bytes, percent, share_text, spread_text
from fedlama.report.words.notes import (
    cost_heading,
    metric_heading,
    notes,
    rate_text,
    seeds_text,
    shown_cost,
    shows_uplink_share,
    uplink_heading,
    uplink_share,
)
from fedlama.report.words.pairs import (
    AVERAGE_HEADINGS,
    MINUS,
    average_cells,
    difference_heading,
    difference_text,
    shows_averages,
    shows_differences,
)

GAP = 2  # columns between two numbers
# What a narrow terminal goes without; the beginnings of headings.
LEAST_IMPORTANT_FIRST = (
    "downlink",
    "uplink, of",
    "learning rate",
    *AVERAGE_HEADINGS,
    MINUS,
    "uplink",
)


def headings(comparison: RunComparison) -> list[str]:
    """The columns of the main table."""
    names = [
        "setting",
        metric_heading(comparison),
    ]
    if shows_differences(comparison):
        names.append(difference_heading(comparison))
    if shows_averages(comparison):
        names += AVERAGE_HEADINGS
    names += [cost_heading(comparison), "uplink"]
    if shows_uplink_share(comparison):
        names.append(uplink_heading(comparison))
    names.append("downlink")
    if _rates_differ(comparison):
        names.append("learning rate")
    return [*names, "seeds"]


def cells(setting: ComparedSetting, comparison: RunComparison) -> list[str]:
    """One row of the main table."""
    row = [
        setting.label,
        spread_text(comparison.score(setting), comparison.metric),
    ]
    if shows_differences(comparison):
        difference = paired_difference(setting, comparison)
        row.append(difference_text(difference, comparison.metric))
    if shows_averages(comparison):
        row += average_cells(setting, comparison)
    row += [
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


def _rates_differ(comparison: RunComparison) -> bool:
    rates = {setting.config.local.rate_if_known for setting in comparison.settings}
    return len(rates) > 1


def terminal_table(comparison: RunComparison, width: int | None = None) -> Group:
    """The main table for `rich.console.Console.print`, with its notes below.

    Arguments:
        comparison: the settings.
        width: the columns of the terminal; where they do not suffice, less important numbers are left out, and names
            stay whole (default: no limit).
    """
    names = headings(comparison)
    rows = [cells(setting, comparison) for setting in comparison.settings]
    shown = _that_fit(names, rows, width)

    table = Table(header_style="bold", box=None, padding=(0, GAP, 0, 0))
    for number in shown:
        under = [row[number] for row in rows]
        if number == 0:
            # A name that is broken in two is hard to find again.
            keeps_whole = max(map(len, under)) <= MAX_WHOLE_NAME
            table.add_column(names[0], overflow="fold", no_wrap=keeps_whole)
        else:
            table.add_column(
                Text(wrapped(names[number], under)), justify="right", no_wrap=True
            )

    for row in rows:
        # Text: a label is never markup.
        table.add_row(*[Text(row[number]) for number in shown])
    return Group(table, Text("\n".join(notes(comparison))))


def _that_fit(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int | None
) -> list[int]:
    """The numbers of the columns that a terminal has room for; the files and the page have all of them."""
    shown = list(range(len(names)))
    if width is None:
        return shown
    for heading in LEAST_IMPORTANT_FIRST:
        if _needed(names, rows, shown) <= width:
            break
        shown = [number for number in shown if not names[number].startswith(heading)]
    return shown


def _needed(
    names: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[int]
) -> int:
    """How wide a table of these columns is."""
    total = 0
    for number in shown:
        under = [row[number] for row in rows]
        heading = wrapped(names[number], under)
        texts = [*heading.split("\n"), *under]
        widest = max(len(text) for text in texts)
        if number == 0:
            widest = min(widest, MAX_WHOLE_NAME)
        total += widest + GAP
    return total


def markdown_table(comparison: RunComparison) -> str:
    """The main table as Markdown, with its notes below."""
    names = headings(comparison)
    lines = [
        markdown_line([markdown_text(name) for name in names]),
        markdown_rule(len(names)),
    ]
    for setting in comparison.settings:
        row = [markdown_text(cell) for cell in cells(setting, comparison)]
        lines.append(markdown_line(row))

    said = [markdown_text(note) for note in notes(comparison)]
    lines.append("")
    lines.append(" ".join(said))
    return "\n".join(lines) + "\n"
