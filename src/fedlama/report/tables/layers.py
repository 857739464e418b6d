"""The table of layers: how often each was averaged, and what it sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.layers import LayerRow, is_coded, layer_rows
from fedlama.report.words.formats import (
    UNKNOWN,
    bits_text,
    count_text,
    human_bytes,
    percent,
)


@dataclass(frozen=True)
class LayerCells:
    """One layer; `counts` has, for each setting, what the table's headings name."""

    name: str
    size: str
    share: str
    counts: list[list[str]]


@dataclass(frozen=True)
class LayerTable:
    """Rows, and below them the statistics of BatchNorm, if there are any, and the totals.

    `headings` are those of each setting: how often a layer was averaged, its uplink and, where the setting codes its
    messages, the bits for each number.
    """

    headings: list[list[str]]
    rows: list[LayerCells]
    statistics: list[str]
    size: str
    totals: list[str]

    @property
    def is_coded(self) -> bool:
        """Whether any setting has a column of bits."""
        return any(len(own) > 2 for own in self.headings)


def layer_table(comparison: RunComparison) -> LayerTable:
    """Every layer in every setting."""
    rows = layer_rows(comparison)
    statistics: list[str] = []
    if any(setting.statistics_bytes for setting in comparison.settings):
        statistics = [
            human_bytes(setting.statistics_bytes) for setting in comparison.settings
        ]

    coded = [is_coded(setting) for setting in comparison.settings]
    headings: list[list[str]] = []
    for is_one in coded:
        own = [
            "averaged",
            "uplink",
        ]
        if is_one:
            own.append("bits")
        headings.append(own)
    return LayerTable(
        headings=headings,
        rows=[_cells(row, coded) for row in rows],
        statistics=statistics,
        size=_whole_number(_total_size(rows)),
        totals=[human_bytes(setting.uplink_bytes) for setting in comparison.settings],
    )


def _cells(row: LayerRow, coded: Sequence[bool]) -> LayerCells:
    counts: list[list[str]] = []
    for count, with_bits in zip(row.counts, coded, strict=True):
        cells = [UNKNOWN] * 3
        if count is not None:
            cells = [
                count_text(count.aggregations),
                human_bytes(count.uplink_bytes),
                bits_text(count.bits),
            ]
        if not with_bits:
            cells = cells[:2]
        counts.append(cells)
    return LayerCells(
        row.name,
        _whole_number(row.size),
        percent(row.share),
        counts,
    )


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
