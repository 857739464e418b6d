"""A chart of the page: one table of numbers, drawn by `static/charts.js`, handed out as CSV, and as a still picture.

The still picture is for readers without scripts and for print. What `charts.js` needs to know is in `drawing`:
`kind` ("lines", "bars" or "tiles"), `at` (which column is x, y, low, high, …), the axes, and the series.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from fedlama.report.comparison import Comparison
from fedlama.report.style import DASHES, PALETTE, inline_svg


@dataclass(frozen=True)
class Chart:
    """`formats` says how each column is read: text, number, percent, bytes, bandwidth or seconds."""

    id: str  # also the name of the files that a reader saves
    title: str
    columns: Sequence[str]
    formats: Sequence[str]
    rows: Sequence[Sequence[Any]]
    drawing: dict[str, Any]
    figure: Figure

    @property
    def still(self) -> Markup:
        """The picture that needs no script."""
        return Markup(inline_svg(self.figure, self.id, str(Markup.escape(self.title))))

    def plain(self) -> dict[str, Any]:
        """What the script reads."""
        table = {"columns": self.columns, "formats": self.formats, "rows": self.rows}
        return {"id": self.id, "title": self.title, **table, **self.drawing}


def script_json(charts: Sequence[Chart], refresh: int | None) -> Markup:
    """The charts as JSON that no text inside can end early: within a script element only `<` could."""
    text = json.dumps(
        {"charts": [chart.plain() for chart in charts], "refresh": refresh},
        allow_nan=False,
        separators=(",", ":"),
    )
    return Markup(text.replace("<", "\\u003c"))


def series_list(comparison: Comparison, **flags: Any) -> list[dict[str, Any]]:
    """A series for each setting, in its colour."""
    return [
        {
            "name": setting.label,
            "colour": index % len(PALETTE),
            "dash": index // len(PALETTE) % len(DASHES),
            "line": True,
            **flags,
        }
        for index, setting in enumerate(comparison.settings)
    ]


def axis(name: str, number_format: str = "number", scale: str = "linear", **others: Any) -> dict[str, Any]:
    """An axis: `scale` is linear, log or category."""
    return {"name": name, "format": number_format, "scale": scale, **others}


def round_axis(name: str, number_format: str, low: float, high: float, most: float = math.inf) -> dict[str, Any]:
    """An axis widened to round numbers, though never beyond `most`, so that it begins and ends with a tick."""
    rough = (high - low) / 5 or abs(high) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    end = min(round(last * step, 12), most)
    return axis(name, number_format, interval=step, min=round(first * step, 12), max=end)


def log_axis(name: str, number_format: str, low: float, high: float, steps: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis from `low` to `high` with ticks at those of `steps` that fall on it."""
    return axis(name, number_format, "log", min=low, max=high, ticks=[step for step in steps if low <= step <= high])


def decades(factors: Sequence[float] = (1, 2, 5)) -> list[float]:
    """Round numbers of every size that bytes and bandwidths have."""
    return [factor * 10.0**power for power in range(16) for factor in factors]
