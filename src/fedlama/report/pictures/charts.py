"""A chart of the page: a table of numbers, drawn by `page/static/charts.js`, handed out as CSV, and as a still picture.

The still picture is for readers without scripts and for print. What `charts.js` needs to know is in `drawing`:
`kind` ("lines", "bars" or "tiles"), `at` (which column is x, y, low, high, …), the axes, and the series.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.pictures.style import colour_number, dash_number, inline_svg


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
        description = str(Markup.escape(self.title))
        text = inline_svg(self.figure, self.id, description)
        return Markup(text)

    def plain(self) -> dict[str, Any]:
        """What the script reads."""
        return {
            "id": self.id,
            "title": self.title,
            "columns": self.columns,
            "formats": self.formats,
            "rows": self.rows,
            **self.drawing,
        }


def script_json(
    charts: Sequence[Chart], settings: Mapping[int, Sequence[str]], refresh: int | None
) -> Markup:
    """The charts as JSON that no text inside can end early.

    Arguments:
        charts: all charts of the page.
        settings: the labels of each group's settings, in the order of its legend.
        refresh: seconds after which the page reads itself again, while runs are going.
    """
    plain = [chart.plain() for chart in charts]
    text = json.dumps(
        {"charts": plain, "settings": settings, "refresh": refresh},
        allow_nan=False,
        separators=(",", ":"),
    )
    # Within a script element only `<` could end it.
    return Markup(text.replace("<", "\\u003c"))


def series_list(
    comparison: RunComparison, *, line: bool = True
) -> list[dict[str, Any]]:
    """A series for each setting, in its colour.

    Arguments:
        comparison: the settings.
        line: whether its points are joined.
    """
    found: list[dict[str, Any]] = []
    for setting in comparison.settings:
        series = {
            "name": setting.label,
            "colour": colour_number(setting.look),
            "dash": dash_number(setting.look),
            "line": line,
        }
        found.append(series)
    return found


def axis(
    name: str, number_format: str = "number", scale: str = "linear", **others: Any
) -> dict[str, Any]:
    """An axis as the script reads it.

    Arguments:
        name: what stands beside it.
        number_format: how its numbers are read, as in `Chart.formats`.
        scale: "linear", "log" or "category".
        others: its ends, ticks and categories.
    """
    return {"name": name, "format": number_format, "scale": scale, **others}


def round_axis(
    name: str, number_format: str, low: float, high: float, maximum: float = math.inf
) -> dict[str, Any]:
    """An axis widened to round numbers, so that it begins and ends with a tick.

    Arguments:
        name: what stands beside it.
        number_format: how its numbers are read, as in `Chart.formats`.
        low: the smallest number that is drawn.
        high: the largest number that is drawn.
        maximum: the axis never reaches beyond it.
    """
    # Rounding may put a whole number of steps a little off: 0.3 / 0.1 is 2.9999999999999996.
    step = _round_step(low, high)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    last = max(last, first + 1)

    # In digits that a reader sees: 3 · 0.1 is 0.30000000000000004.
    start = round(first * step, 12)
    end = round(last * step, 12)
    return axis(
        name,
        number_format,
        interval=step,
        min=start,
        max=min(end, maximum),
    )


def _round_step(low: float, high: float) -> float:
    """1, 2 or 5 times a power of ten, so that about five of them go from low to high."""
    # One number alone gets an axis as long as the number is large.
    rough = (high - low) / 5 or abs(high) / 5 or 1.0
    magnitude = math.floor(math.log10(rough))
    power = 10.0**magnitude
    enough = rough * (1 - 1e-9)
    for factor in (1, 2, 5):
        step = power * factor
        if step >= enough:
            return step
    return power * 10


def log_axis(
    name: str, number_format: str, low: float, high: float, steps: Sequence[float]
) -> dict[str, Any]:
    """A logarithmic axis.

    Arguments:
        name: what stands beside it.
        number_format: how its numbers are read, as in `Chart.formats`.
        low: where it begins.
        high: where it ends.
        steps: numbers that may have a tick; those that fall on the axis get one.
    """
    ticks = [step for step in steps if low <= step <= high]
    return axis(
        name,
        number_format,
        "log",
        min=low,
        max=high,
        ticks=ticks,
    )


def decades(factors: Sequence[float] = (1, 2, 5)) -> list[float]:
    """Round numbers of every size that bytes and bandwidths have."""
    numbers: list[float] = []
    for power in range(16):
        for factor in factors:
            numbers.append(factor * 10.0**power)
    return numbers
