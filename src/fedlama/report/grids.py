"""A table of text, in the four forms that people need: for the terminal, as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedlama.run.files import write_atomically

UNBROKEN = "\N{NO-BREAK SPACE}"  # headings may take two lines, numbers with their units and spreads may not
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "φ": r"$\phi$",
    "τ": r"$\tau$",
    "α": r"$\alpha$",
    "δ": r"$\delta$",
    "λ": r"$\lambda$",
    "−": "$-$",
    "×": r"$\times$",
    "–": "--",
    "…": r"\dots{}",
}


@dataclass(frozen=True)
class Grid:
    """Headings, rows of cells, and notes below; `parts` are headings that go before the row of that number.

    `records` holds the numbers behind the cells, unrounded, for CSV. `narrow` are the numbers of the columns that a
    terminal has room for; None: all of them.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    records: Sequence[dict[str, object]]
    parts: dict[int, str]
    caption: str = ""
    narrow: Sequence[int] | None = None

    def terminal(self) -> Group:
        """For `rich.console.Console.print`: a table for each part, in eighty columns."""
        starts = sorted({0, *self.parts})
        titles = [Text(self.caption, style="bold")] if self.caption else []
        tables = [self._part(start, end) for start, end in zip(starts, [*starts[1:], len(self.rows)], strict=True)]
        return Group(*titles, *tables)

    def _part(self, start: int, end: int) -> Table:
        title = Text(self.parts[start], style="italic") if start in self.parts else None
        table = Table(title=title, title_justify="left", header_style="bold", box=None, padding=(0, 1, 0, 0))
        shown = range(len(self.headings)) if self.narrow is None else self.narrow
        for number in shown:
            table.add_column(self.headings[number], justify="right" if number else "left", overflow="fold")
        for row in self.rows[start:end]:
            cells = [row[number].replace(" ", UNBROKEN) for number in shown]
            table.add_row(*(Text(cell) for cell in cells))  # Text: a name is never markup
        return table

    def markdown(self) -> str:
        """With the parts as rows of their own, and the notes below."""
        lines = [_line(self.headings), _line(["---", *["---:"] * (len(self.headings) - 1)])]
        for number, row in enumerate(self.rows):
            if number in self.parts:
                lines.append(_line([f"*{markdown_text(self.parts[number])}*", *[""] * (len(self.headings) - 1)]))
            lines.append(_line([markdown_text(cell) for cell in row]))
        return "\n".join([*lines, "", *(f"* {markdown_text(note)}" for note in self.notes)]) + "\n"

    def csv(self) -> str:
        """The numbers themselves."""
        stream = io.StringIO()
        fields = list(dict.fromkeys(field for record in self.records for field in record))
        writer = csv.DictWriter(stream, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records)
        return stream.getvalue()

    def latex(self) -> str:
        """A `tabular` for \\input, with the notes as comments."""
        columns = "l" + "r" * (len(self.headings) - 1)
        lines = [f"\\begin{{tabular}}{{{columns}}}", "\\hline", _latex_line(self.headings), "\\hline"]
        for number, row in enumerate(self.rows):
            if number in self.parts:
                lines += [
                    "\\hline",
                    f"\\multicolumn{{{len(self.headings)}}}{{l}}{{{latex_text(self.parts[number])}}} \\\\",
                ]
            lines.append(_latex_line(row))
        return "\n".join([*(f"% {note}" for note in self.notes), *lines, "\\hline", "\\end{tabular}"]) + "\n"

    def write(self, folder: Path, name: str) -> None:
        """As `name`.md, .csv and .tex."""
        folder.mkdir(parents=True, exist_ok=True)
        title = f"# {markdown_text(self.caption)}\n\n" if self.caption else ""
        write_atomically(folder / f"{name}.md", title + self.markdown())
        write_atomically(folder / f"{name}.csv", self.csv())
        write_atomically(folder / f"{name}.tex", self.latex())


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is: no column breaks, no emphasis, no HTML."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False))


def latex_text(text: str) -> str:
    """Text that LaTeX shows as it is."""
    return "".join(LATEX.get(character, character) for character in text)


def _line(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def _latex_line(values: Sequence[str]) -> str:
    return " & ".join(map(latex_text, values)) + r" \\"
