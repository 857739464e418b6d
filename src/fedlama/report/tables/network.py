"""The table of the network replay: what each setting needs to the target, and how long that takes."""

from __future__ import annotations

from dataclasses import dataclass

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.network import Demand, Replay
from fedlama.report.words.formats import UNKNOWN, count_text, human_bytes
from fedlama.report.words.units import duration_text

NETWORK_HEADINGS = (
    "setting",
    "time",
    "step",
    "round trips",
    "up, per client",
    "down, per client",
)


@dataclass(frozen=True)
class NetworkRow:
    """One setting."""

    label: str
    numbers: list[str]  # under all headings but the first

    @property
    def time(self) -> str:
        """How long the setting takes to the target."""
        return self.numbers[0]


def network_rows(played: Replay, comparison: RunComparison) -> list[NetworkRow]:
    """One row per setting; dashes where it never reaches the target.

    Arguments:
        played: the replay.
        comparison: the settings that were replayed.
    """
    rows: list[NetworkRow] = []
    for setting, demand in zip(comparison.settings, played.demands, strict=True):
        numbers = _numbers(demand, played)
        row = NetworkRow(setting.label, numbers)
        rows.append(row)
    return rows


def _numbers(demand: Demand | None, played: Replay) -> list[str]:
    if demand is None:
        return [UNKNOWN] * (len(NETWORK_HEADINGS) - 1)
    return [
        duration_text(demand.seconds(played.network)),
        str(demand.step),
        count_text(demand.rounds),
        human_bytes(demand.uplink_bytes),
        human_bytes(demand.downlink_bytes),
    ]
