"""A run on a slow link, as it was measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedlama.report.numbers.network import Demand

CLIENTS = 2


@dataclass
class Run:
    """One run, as it was measured; bytes are those of one client."""

    rate: float
    setting: str
    rounds: int
    seconds: float  # of all rounds
    up: float  # at the cable
    down: float
    ledger_up: float
    ledger_down: float
    # Of the ledger, in each round. Empty in the files of earlier measurements, which kept the sums only.
    round_up: list[float] = field(default_factory=list)
    round_down: list[float] = field(default_factory=list)
    chunk: int | None = None  # bytes of Flower's pieces; None for its own choice
    target_rounds: int | None = None
    target_seconds: float | None = None
    predicted: float = 0.0
    predicted_target: float | None = None
    # With the overhead of the other runs on such links; None where there are no others
    predicted_by_others: float | None = None

    @property
    def off(self) -> float:
        """How far the prediction is from what was measured, as a share of it."""
        return self.predicted / self.seconds - 1

    @property
    def off_by_others(self) -> float | None:
        """The same, where this run took no part in the fit."""
        if self.predicted_by_others is None:
            return None
        return self.predicted_by_others / self.seconds - 1

    def demand(self) -> Demand:
        """What the replay is given of the whole run."""
        return _demand(self.rounds, self.ledger_up, self.ledger_down)

    def demand_until(self, last: int) -> Demand | None:
        """What the replay is given of the rounds up to this one; None where nobody knows what they moved."""
        if last == self.rounds:
            return self.demand()
        # No even share of the sum: FedLAMA sends everything in its first cycle, and frugal in its first round.
        if not self.round_up:
            return None
        up = sum(self.round_up[:last])
        down = sum(self.round_down[:last])
        return _demand(last, up, down)


def _demand(rounds: int, up: float, down: float) -> Demand:
    return Demand(
        step=0,
        rounds=rounds,
        uplink_bytes=up,
        downlink_bytes=down,
        clients=CLIENTS,
    )
