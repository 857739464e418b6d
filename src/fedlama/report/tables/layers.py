"""The table of layers: how often each was averaged, and what it sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedlama.report.numbers.comparison import Comparison
from fedlama.report.numbers.layers import LayerRow, layer_rows
from fedlama.report.words.formats import UNKNOWN, count_text, human_bytes, percent


@dataclass(frozen=True)
class LayerCells:
    """One layer; `pairs` has aggregations and uplink for each setting."""

    name: str
    size: str
    share: str
    pairs: list[tuple[str, str]]


@dataclass(frozen=True)
class LayerTable:
    """Rows, and below them the statistics of BatchNorm, if there are any, and the totals."""

    rows: list[LayerCells]
    statistics: list[str]
    size: str
    totals: list[str]


def layer_table(comparison: Comparison) -> LayerTable:
    """Every layer in every setting."""
    rows = layer_rows(comparison)
    statistics: list[str] = []
    if any(setting.statistics_bytes for setting in comparison.settings):
        statistics = [human_bytes(setting.statistics_bytes) for setting in comparison.settings]

    return LayerTable(
        rows=[_cells(row) for row in rows],
        statistics=statistics,
        size=_whole_number(_total_size(rows)),
        totals=[human_bytes(setting.uplink_bytes) for setting in comparison.settings],
    )


def _cells(row: LayerRow) -> LayerCells:
    pairs: list[tuple[str, str]] = []
    for count in row.counts:
        if count is None:
            pairs.append((UNKNOWN, UNKNOWN))
            continue
        averaged = count_text(count.aggregations)
        uplink = human_bytes(count.uplink_bytes)
        pairs.append((averaged, uplink))
    return LayerCells(row.name, _whole_number(row.size), percent(row.share), pairs)


def _total_size(rows: Sequence[LayerRow]) -> int | None:
    """None where one of them is not known."""
    total = 0
    for row in rows:
        if row.size is None:
            return None
        total += row.size
    return total


def _whole_number(value: int | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
