"""One result beside another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedlama.run.texts import facts_table
from fedlama.training import records

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, repr=False)
class Relative:
    """One result beside another.

    Arguments:
        to: The other's policy.
        uplink: Uplink bytes as a share of the other's.
        downlink: Downlink bytes as a share of the other's.
        total: Bytes up and down as a share of the other's.
        score: The metric minus the other's; None where one of them has none, or they have different ones.
        loss: The test loss minus the other's.
        measure: What the metric is called, and which direction is better.
    """

    to: str
    uplink: float
    downlink: float
    total: float
    score: float | None
    loss: float
    measure: records.Measure | None

    def __str__(self) -> str:
        parts = [
            f"{self.uplink:.1%} of {self.to}'s uplink bytes",
            f"{self.total:.1%} of all its bytes",
        ]
        parts += [f"{name} {value}" for name, value in self._differences()]
        return ", ".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        shares = [
            ("uplink", f"{self.uplink:.1%} of {self.to}"),
            ("all bytes", f"{self.total:.1%} of {self.to}"),
        ]
        return facts_table([*shares, *self._differences()])

    def _differences(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        measure = self.measure
        if measure is not None and self.score is not None:
            difference = _difference(self.score, measure)
            found.append((measure.name, difference))
        found.append(("test loss", f"{self.loss:+.3f}"))
        return found


def _difference(score: float, measure: records.Measure) -> str:
    if measure.is_accuracy:
        points = 100 * score
        return f"{points:+.2f} points"
    better = "lower"
    if measure.higher_is_better:
        better = "higher"
    return f"{score:+.4g} ({better} is better)"


def share_of(part: float, whole: float) -> float:
    """A share; not a number where there is no whole."""
    if not whole:
        return float("nan")
    return part / whole
