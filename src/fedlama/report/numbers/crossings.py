"""Figure 1 of the paper for runs of our own: where δ_l overtakes 1 − λ_l, and which layers that lengthens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedlama.core import adjust_intervals, crossing_curves
from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.run.recorded import RecordedRun
from fedlama.training.records import Record


@dataclass(frozen=True)
class Crossing:
    """The decision at a run's latest full aggregation; the layers it walked, by ascending discrepancy."""

    look: int  # of the setting
    label: str
    seed: int
    step: int
    base_interval: int
    long_interval: int
    names: list[str]
    delta: list[float]
    kept: list[float]  # 1 − λ
    lengthened: list[bool]
    layers: int  # of the model, those that are not walked included

    @property
    def walked(self) -> str:
        """What the walked layers are called: without biases and norms they are kernels."""
        if len(self.names) < self.layers:
            return "kernels"
        return "layers"

    @property
    def last_long(self) -> int | None:
        """The place, from 1, of the last layer that is lengthened; None where there is none."""
        places = [place for place, long in enumerate(self.lengthened, 1) if long]
        return max(places, default=None)

    @property
    def lengthened_share(self) -> float:
        """The share of the parameters that the lengthened layers hold."""
        share = 0.0
        before = 1.0
        for after, long in zip(self.kept, self.lengthened, strict=True):
            if long:
                share += before - after
            before = after
        return share


def crossings(comparison: RunComparison) -> list[Crossing]:
    """One for every setting that lengthens layers, from the first of its runs that measured all of them."""
    found: list[Crossing] = []
    for setting in comparison.settings:
        # Algorithm 2 is FedLAMA's, and its rule "accelerate" shortens intervals instead.
        policy = setting.config.policy
        if policy.kind != "fedlama" or policy.rule == "accelerate":
            continue
        for run in setting.runs:
            crossing = _crossing(setting, run)
            if crossing is not None:
                found.append(crossing)
                break
    return found


def _crossing(setting: ComparedSetting, run: RecordedRun) -> Crossing | None:
    record = _latest_complete(run.records)
    summary = run.summary
    if record is None or summary is None:
        return None

    sizes = [layer.size for layer in setting.layers if layer.size]
    adaptive = [layer.adaptive for layer in summary.layers]
    discrepancy = [d for d in record.discrepancy if d is not None]
    if len(sizes) != len(discrepancy):
        return None

    policy = setting.config.policy
    intervals = adjust_intervals(
        discrepancy,
        sizes,
        base_interval=policy.base_interval,
        increase_factor=policy.increase_factor,
        adaptive=adaptive,
        rule=policy.rule,
    )
    order = _walked(discrepancy, adaptive, policy.rule)
    if not order:
        # No layer may be lengthened, so there was nothing to decide.
        return None

    delta, kept = crossing_curves(discrepancy, sizes, adaptive, policy.rule)
    return Crossing(
        look=setting.look,
        label=setting.label,
        seed=run.seed,
        step=record.step,
        base_interval=policy.base_interval,
        long_interval=policy.base_interval * policy.increase_factor,
        names=[setting.layers[layer].name for layer in order],
        delta=delta,
        kept=kept,
        lengthened=[intervals[layer] > policy.base_interval for layer in order],
        layers=len(sizes),
    )


def _latest_complete(records: Sequence[Record]) -> Record | None:
    """The last record that has a usable discrepancy of every layer."""
    for record in reversed(records):
        if _complete(record.discrepancy):
            return record
    return None


def _complete(discrepancy: Sequence[float | None]) -> bool:
    for d in discrepancy:
        if d is None or not math.isfinite(d) or d < 0:
            return False

    return any(discrepancy)


def _walked(
    discrepancy: Sequence[float], adaptive: Sequence[bool], variant: str
) -> list[int]:
    """The layers that Algorithm 2 walks, by ascending discrepancy; the variant as printed walks all of them."""
    walked: list[int] = []
    for layer in range(len(discrepancy)):
        if adaptive[layer] or variant == "printed":
            walked.append(layer)
    # Equal discrepancies keep the order of the layers
    walked.sort(key=lambda layer: discrepancy[layer])
    return walked
