"""The layers of all settings side by side."""

from __future__ import annotations

from dataclasses import dataclass

from fedlama.report.comparison import Comparison
from fedlama.report.outcomes import LayerCount


@dataclass(frozen=True)
class LayerRow:
    """One layer in every setting; None where a setting's model has no such layer."""

    name: str
    size: int | None
    share: float | None  # of the model's parameters
    counts: tuple[LayerCount | None, ...]


def layer_rows(comparison: Comparison) -> list[LayerRow]:
    """The layers in order of first appearance."""
    tables = [{layer.name: layer for layer in setting.layers} for setting in comparison.settings]
    rows: dict[str, LayerRow] = {}
    for table in tables:
        total = sum(layer.size or 0 for layer in table.values())
        for name in table:
            if name not in rows:
                counts = tuple(other.get(name) for other in tables)
                size = next((count.size for count in counts if count and count.size), None)
                rows[name] = LayerRow(name, size, size / total if size and total else None, counts)
    return list(rows.values())
