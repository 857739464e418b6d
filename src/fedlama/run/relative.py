"""One result beside another."""

from __future__ import annotations

from dataclasses import dataclass

from fedlama.run.texts import facts_table
from fedlama.training import records


@dataclass(frozen=True, repr=False)
class Relative:
    """One result beside another.

    Arguments:
        to: The other's policy.
        uplink: Uplink bytes as a share of the other's.
        downlink: Downlink bytes as a share of the other's.
        total: Bytes up and down as a share of the other's.
        score: The metric minus the other's; None where one of them has none, or they have different ones.
        loss: The test loss minus the other's; None where one of them has none.
        measure: What the metric is called, and which direction is better.
    """

    to: str
    uplink: float
    downlink: float
    total: float
    score: float | None
    loss: float | None
    measure: records.Measure | None

    def __str__(self) -> str:
        parts = [
            f"{self.uplink:.1%} of {self.to}'s uplink bytes",
            f"{self.total:.1%} of all its bytes",
        ]
        for name, value in self._differences():
            parts.append(f"{name} {value}")
        return ", ".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        facts = [
            ("uplink", f"{self.uplink:.1%} of {self.to}"),
            ("all bytes", f"{self.total:.1%} of {self.to}"),
        ]
        facts += self._differences()
        return facts_table(facts)

    def _differences(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        measure = self.measure
        score = self.score
        if measure is not None and score is not None:
            difference = _difference(score, measure)
            found.append((measure.name, difference))

        if self.loss is not None:
            loss = f"{self.loss:+.3f}"
            found.append(("test loss", loss))
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
