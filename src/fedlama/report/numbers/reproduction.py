"""A panel of the paper and what came of its study here."""

from __future__ import annotations

from dataclasses import dataclass

from fedlama.paper.recipe import Row
from fedlama.paper.reproduce import Panel
from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.study.index import StudyIndex


@dataclass(frozen=True)
class PanelOutcome:
    """What came of a panel's study."""

    panel: Panel
    comparison: RunComparison
    index: StudyIndex

    @property
    def baseline(self) -> str:
        """The name of the setting whose cost is 100 %, finished or not."""
        finished = self.comparison.baseline
        if finished is not None:
            return finished.label
        # A recipe's first line
        return self.panel.rows[0].name

    def printed(self, setting: ComparedSetting) -> Row | None:
        """The row that the paper prints for this setting; None where it has none."""
        for row in self.panel.rows:
            if row.name == setting.label:
                return row
        return None


def long_share(cost: float, factor: int) -> float:
    """The share s of the parameters that, averaged `factor` times less often, gives this cost: 1 − s + s / factor.

    Arguments:
        cost: C relative to FedAvg's at the base interval, 0 to 1.
        factor: φ, how much longer the long interval is.
    """
    return (1 - cost) / (1 - 1 / factor)
