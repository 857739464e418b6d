"""The comparison as a table: in the terminal, and in Markdown."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from fedlama.report.comparison import Comparison, Setting
from fedlama.report.formats import human_bytes, notes, percent, seeds_text, shown_cost, spread_text
from fedlama.report.grids import markdown_text


def headings(comparison: Comparison) -> list[str]:
    """The columns of the main table."""
    rate = ["learning rate"] if _rates_differ(comparison) else []
    return ["setting", comparison.metric, "cost", "uplink", "downlink", *rate, "seeds"]


def _rates_differ(comparison: Comparison) -> bool:
    return len({setting.config.get("local.learning_rate") for setting in comparison.settings}) > 1


def cells(setting: Setting, comparison: Comparison) -> list[str]:
    """One row of the main table."""
    return [
        setting.label,
        spread_text(comparison.score(setting), comparison.metric),
        percent(shown_cost(setting, comparison)),
        human_bytes(setting.uplink_bytes),
        human_bytes(setting.downlink_bytes),
        *([f"{setting.config['local.learning_rate']:g}"] if _rates_differ(comparison) else []),
        seeds_text(setting),
    ]


def terminal_table(comparison: Comparison) -> Table:
    """The main table for `rich.console.Console.print`."""
    table = Table(caption=Text("\n".join(notes(comparison))), caption_justify="left", header_style="bold")
    setting, *numbers = headings(comparison)
    table.add_column(setting, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in comparison.settings:
        table.add_row(*(Text(cell) for cell in cells(row, comparison)))  # Text: a label is never markup
    return table


def markdown_table(comparison: Comparison) -> str:
    """The main table as Markdown, with its notes below."""
    setting, *numbers = headings(comparison)
    lines = [_row([setting, *numbers]), _row(["---", *["---:"] * len(numbers)])]
    lines += [_row([markdown_text(cell) for cell in cells(row, comparison)]) for row in comparison.settings]
    return "\n".join([*lines, "", " ".join(markdown_text(note) for note in notes(comparison))]) + "\n"


def _row(values: list[str]) -> str:
    return f"| {' | '.join(values)} |"
