"""What a learning curve is of, and the range of its values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.outcomes import LOSS
from fedlama.report.numbers.seeds import Curve
from fedlama.report.pictures.charts import round_axis
from fedlama.training.records import ACCURACY

OWN_NAMES = (ACCURACY, LOSS, "test loss", "training loss")
MAX_POINTS = 400  # of a curve that is drawn; a training loss has one per round


@dataclass(frozen=True)
class CurveMeasure:
    """What a curve is of."""

    name: str  # "accuracy", "test loss", …
    curve: Callable[[ComparedSetting], Curve]

    @property
    def is_share(self) -> bool:
        """Whether it is read as a percentage."""
        return self.name == ACCURACY

    @property
    def slug(self) -> str:
        """In ids and the names of files, where a metric of somebody else's may not write what it likes."""
        if self.name in OWN_NAMES:
            return self.name.replace(" ", "-")
        return "metric"

    @property
    def number_format(self) -> str:
        """How its numbers are read, as in `Chart.formats`."""
        if self.is_share:
            return "percent"
        return "number"

    def axis(self, low: float, high: float) -> dict[str, Any]:
        """A vertical axis. No accuracy is above 100 %, whatever room the axis would like."""
        largest = math.inf
        if self.is_share:
            largest = 1.0
        return round_axis("", self.number_format, low, high, largest)


def score(comparison: RunComparison) -> CurveMeasure:
    """What the settings are compared by."""
    return CurveMeasure(comparison.metric, lambda setting: setting.curve)


TEST_LOSS = CurveMeasure("test loss", lambda setting: setting.test_loss)
TRAINING_LOSS = CurveMeasure(
    "training loss", lambda setting: thinned(setting.training_loss)
)


def thinned(curve: Curve) -> Curve:
    """Evenly chosen points of a long curve, the last among them: a page should not grow with the rounds of a run."""
    stride = math.ceil(len(curve.steps) / MAX_POINTS)
    if stride <= 1:
        return curve

    start = (len(curve.steps) - 1) % stride
    chosen = slice(start, None, stride)
    return Curve(
        steps=curve.steps[chosen],
        uplink_bytes=curve.uplink_bytes[chosen],
        mean=curve.mean[chosen],
        low=curve.low[chosen],
        high=curve.high[chosen],
    )


def value_range(
    comparison: RunComparison, measure: CurveMeasure, *, late: bool
) -> tuple[float, float] | None:
    """The smallest and the largest value of all curves; None where there is nothing.

    Arguments:
        comparison: the settings.
        measure: what the curves are of.
        late: only of the curves' second half, where settings differ by little; the first rise may leave the picture.
    """
    lows: list[float] = []
    highs: list[float] = []
    for setting in comparison.settings:
        curve = measure.curve(setting)
        for place, step in enumerate(curve.steps):
            in_first_half = 2 * step < curve.steps[-1]
            if late and in_first_half:
                continue
            lows.append(curve.low[place])
            highs.append(curve.high[place])
    if not lows:
        return None
    return min(lows), max(highs)
