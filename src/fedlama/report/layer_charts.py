"""The layers: how often each was averaged, what it sent, where the latest decision fell, and intervals over time."""

from __future__ import annotations

from typing import Any

from fedlama.report.charts import Chart, axis, series_list
from fedlama.report.comparison import Comparison
from fedlama.report.crossings import Crossing, crossing_figure
from fedlama.report.interval_maps import IntervalMap, interval_figure
from fedlama.report.layer_rows import layer_rows
from fedlama.report.plots import layer_value, layers_figure, many_bars, shown_rows
from fedlama.report.style import PALETTE

COUNTED = {"aggregations": ("times averaged", "number"), "uplink_bytes": ("bytes sent by all clients", "bytes")}


def layer_chart(comparison: Comparison, of: str) -> Chart | None:
    """A bar a layer and setting, of its "aggregations" or its "uplink_bytes"; None where no run tells them."""
    name, kind = COUNTED[of]
    rows = [
        [setting.label, row.name, row.size, row.share, value]
        for index, setting in enumerate(comparison.settings)
        for row in shown_rows(comparison)
        if (value := layer_value(row, index, of)) is not None
    ]
    if not rows:
        return None
    layers, everything = [row.name for row in shown_rows(comparison)], len(layer_rows(comparison))
    note = f" (the {len(layers)} largest of {everything} layers)" if len(layers) < everything else ""
    return Chart(
        id="aggregations-by-layer" if of == "aggregations" else "bytes-by-layer",
        title=("Aggregations of each layer" if of == "aggregations" else "Bytes sent for each layer") + note,
        columns=["setting", "layer", "parameters", "share of the model", name],
        formats=["text", "text", "number", "percent", kind],
        rows=rows,
        drawing={
            "kind": "bars",
            "height": _bars_height(comparison, len(layers)),
            "at": {"x": 4, "y": 1},
            "tip": [4, 3],
            "many": many_bars(comparison),
            "x": axis(name, kind, min=0),
            "y": axis("", scale="category", categories=layers),
            "series": series_list(comparison),
        },
        figure=layers_figure(comparison, of),
    )


def _bars_height(comparison: Comparison, layers: int) -> int:
    """Pixels: every name keeps a line of its own."""
    row = 15 if many_bars(comparison) else max(22, 9 * len(comparison.settings) + 8)
    return 70 + row * layers


def crossing_chart(crossing: Crossing, number: int) -> Chart:
    """δ and 1 − λ over the layers; a filled dot is a layer that is lengthened."""
    curves = {"δ": crossing.delta, "1 − λ": crossing.kept}
    rows = [
        [curve, f"{place}. {name}", value, long]
        for curve, values in curves.items()
        for place, (name, value, long) in enumerate(zip(crossing.names, values, crossing.lengthened, strict=True), 1)
    ]
    own = crossing.index % len(PALETTE)
    return Chart(
        id=f"crossing-{number}",
        title=f"δ and 1 − λ of {crossing.label}",
        columns=["curve", "layer", "share", "lengthened"],
        formats=["text", "text", "percent", "text"],
        rows=rows,
        drawing={
            "kind": "lines",
            "height": 360 if len(crossing.names) <= 16 else 300,
            "at": {"x": 1, "y": 2, "filled": 3},
            "tip": [2, 3],
            "dots": True,
            "x": axis(
                "layers, by ascending discrepancy",
                scale="category",
                categories=[row[1] for row in rows[: len(crossing.names)]],
            ),
            "y": axis("", "percent", min=0, max=1),
            "series": [
                {"name": "δ", "colour": own, "dash": 0, "line": True, "dots": True},
                {"name": "1 − λ", "colour": "muted", "dash": 1, "line": True, "dots": False},
            ],
        },
        figure=crossing_figure(crossing),
    )


def interval_chart(one: IntervalMap, number: int) -> Chart:
    """A row a layer, cycles from left to right, the darker the longer the interval."""
    rows: list[list[Any]] = [[span.layer, span.first, span.last, span.interval] for span in one.spans]
    return Chart(
        id=f"intervals-{number}",
        title=f"Intervals of {one.label} over the cycles",
        columns=["layer", "first cycle", "last cycle", "interval in steps"],
        formats=["text", "number", "number", "number"],
        rows=rows,
        drawing={
            "kind": "tiles",
            "height": 70 + (14 if len(one.layers) > 24 else 24) * len(one.layers),
            "at": {"y": 0, "x": 1, "end": 2, "value": 3},
            "x": axis("cycle", min=0.5, max=one.cycles + 0.5),
            "y": axis("", scale="category", categories=one.layers),
            "low": one.intervals[0],
            "high": one.intervals[-1],
            "colour": one.index % len(PALETTE),
        },
        figure=interval_figure(one),
    )
