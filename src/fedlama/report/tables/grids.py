"""A table of text, in the four forms that people need: for the terminal, as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import wrap

from rich import console
from rich.table import Table
from rich.text import Text

from fedlama.run.files import write_atomically

MAX_WHOLE_NAME = 24  # characters
# Headings may take two lines, numbers with their units and spreads may not
NO_BREAK = "\N{NO-BREAK SPACE}"
LATEX_FOR = {
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

    def terminal(self) -> console.Group:
        """For `rich.console.Console.print`: a table for each part, in eighty columns."""
        shown: list[console.RenderableType] = []
        if self.caption:
            shown.append(Text(self.caption, style="bold"))

        # A part goes on until the next one begins.
        starts = sorted({0, *self.parts})
        limits = [*starts, len(self.rows)]
        for start, end in pairwise(limits):
            part = self._part(start, end)
            shown.append(part)
        return console.Group(*shown)

    def _part(self, start: int, end: int) -> Table:
        """The rows from one number to another, under their part's heading."""
        title = None
        if start in self.parts:
            title = Text(self.parts[start], style="italic")

        table = Table(
            title=title,
            title_justify="left",
            header_style="bold",
            box=None,
            padding=(0, 1, 0, 0),
        )
        columns = self.narrow
        if columns is None:
            columns = range(len(self.headings))
        for number in columns:
            side = "left"
            if number:
                side = "right"
            # A name that is broken in two is hard to find again; numbers fold first.
            keeps_whole = (
                number == 0
                and max(len(row[0]) for row in self.rows[start:end]) <= MAX_WHOLE_NAME
            )
            under = [row[number] for row in self.rows[start:end]]
            heading = _narrowed(wrapped(self.headings[number], under), under)
            table.add_column(
                Text(heading), justify=side, overflow="fold", no_wrap=keeps_whole
            )

        for row in self.rows[start:end]:
            # Text: a name is never markup.
            cells = [Text(row[number].replace(" ", NO_BREAK)) for number in columns]
            table.add_row(*cells)
        return table

    def markdown(self) -> str:
        """With the parts as rows of their own, and the notes below."""
        names = [markdown_text(heading) for heading in self.headings]
        lines = [
            markdown_line(names),
            markdown_rule(len(names)),
        ]
        empty = [""] * (len(names) - 1)
        for number, row in enumerate(self.rows):
            if number in self.parts:
                title = markdown_text(self.parts[number])
                lines.append(markdown_line([f"*{title}*", *empty]))
            cells = [markdown_text(cell) for cell in row]
            lines.append(markdown_line(cells))

        lines.append("")
        for note in self.notes:
            lines.append(f"* {markdown_text(note)}")
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """The numbers themselves."""
        fields: dict[str, None] = {}  # in the order in which they appear
        for record in self.records:
            fields.update(dict.fromkeys(record))

        stream = io.StringIO()
        writer = csv.DictWriter(
            stream,
            list(fields),
            lineterminator="\n",
        )
        writer.writeheader()
        writer.writerows(self.records)
        return stream.getvalue()

    def latex(self) -> str:
        """A `tabular` for \\input, with the notes as comments."""
        width = len(self.headings)
        columns = "l" + "r" * (width - 1)

        lines = [f"% {note}" for note in self.notes]
        lines.append(f"\\begin{{tabular}}{{{columns}}}")
        lines.append("\\hline")
        lines.append(_latex_line(self.headings))
        lines.append("\\hline")
        for number, row in enumerate(self.rows):
            if number in self.parts:
                part = latex_text(self.parts[number])
                lines.append("\\hline")
                lines.append(f"\\multicolumn{{{width}}}{{l}}{{{part}}} \\\\")
            lines.append(_latex_line(row))
        lines.append("\\hline")
        lines.append("\\end{tabular}")
        return "\n".join(lines) + "\n"

    def write(self, folder: Path, name: str) -> None:
        """Write it in the three forms of files.

        Arguments:
            folder: made if it is not there.
            name: the files' name, to which .md, .csv and .tex are added.
        """
        folder.mkdir(parents=True, exist_ok=True)
        page = self.markdown()
        if self.caption:
            caption = markdown_text(self.caption)
            page = f"# {caption}\n\n{page}"
        contents = {
            "md": page,
            "csv": self.csv(),
            "tex": self.latex(),
        }
        for ending, content in contents.items():
            file = folder / f"{name}.{ending}"
            write_atomically(file, content)


def wrapped(heading: str, cells: Sequence[str]) -> str:
    """A heading on as many lines as make it no wider than what stands below it: numbers need the room."""
    width = _width(cells)
    lines = wrap(heading, width, break_long_words=False)
    return "\n".join(lines)


def _width(cells: Sequence[str]) -> int:
    """Of a column with these cells."""
    lengths = [len(cell) for cell in cells]
    return max([1, *lengths])


def _narrowed(heading: str, cells: Sequence[str]) -> str:
    """The name of a policy that is still wider than the numbers below it breaks before its arguments."""
    width = _width(cells)
    lines: list[str] = []
    for line in heading.split("\n"):
        if len(line) > width:
            lines.append(line.replace("(", "\n(", 1))
        else:
            lines.append(line)
    return "\n".join(lines)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is: no column breaks, no emphasis, no HTML."""
    without_html = html.escape(text, quote=False)
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", without_html)


def markdown_line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def markdown_rule(columns: int) -> str:
    """The line below a Markdown table's headings: a first column of names, the others of numbers."""
    names = "---"
    numbers = "---:"
    return markdown_line([names] + [numbers] * (columns - 1))


def latex_text(text: str) -> str:
    """Text that LaTeX shows as it is."""
    shown = ""
    for character in text:
        shown += LATEX_FOR.get(character, character)
    return shown


def _latex_line(values: Sequence[str]) -> str:
    cells = [latex_text(value) for value in values]
    return " & ".join(cells) + r" \\"
