"""Results as people read them: a score, a network, facts in a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fedlama.base import printable
from fedlama.training import records

if TYPE_CHECKING:
    pass


def score_text(score: float, measure: records.Measure) -> str:
    """A metric as people read it: an accuracy in percent."""
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
    if layers:
        first = printable(layers[0].name)
        text += f" from {first} on"
    return text
