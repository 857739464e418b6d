"""Results as people read them: a score, a network, rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedlama.base import printable
from fedlama.training import records

# Of bytes; below, whole percents would hide differences
SMALL_SHARE = 0.1


def plain_score(score: float, measure: records.Measure) -> str:
    """A metric on a terminal and in a notebook, beside Python's own numbers: an accuracy in percent."""
    if measure.is_accuracy:
        return f"{score:.1%}"
    return f"{score:.4g}"


def facts_table(facts: Sequence[tuple[str, str]]) -> str:
    """Names and values as an HTML table, for a notebook."""
    rows = [
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in facts
    ]
    return f"<table>{''.join(rows)}</table>"


def network_text(summary: records.Summary) -> str:
    """How large a network is, and its first layer, in a few words."""
    layers = summary.layers
    size = sum(layer.size for layer in layers)
    text = f"{size:,} parameters in {len(layers):,} layers"
    if not layers:
        return text

    first = printable(layers[0].name)
    return f"{text} from {first} on"


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table as lines in which every column has one width."""
    widths: list[int] = []
    for column in zip(*table, strict=True):
        longest = max(len(cell) for cell in column)
        widths.append(longest)

    lines: list[str] = []
    for row in table:
        padded: list[str] = []
        for cell, width in zip(row, widths, strict=True):
            padded.append(cell.ljust(width))
        line = "  ".join(padded)
        lines.append(line.rstrip())
    return lines


def html_row(tag: str, cells: Sequence[str]) -> str:
    """A row of an HTML table, all of whose cells have one tag: `th` or `td`."""
    parts: list[str] = []
    for cell in cells:
        content = escape(cell)
        parts.append(f"<{tag}>{content}</{tag}>")
    joined = "".join(parts)
    return f"<tr>{joined}</tr>"
