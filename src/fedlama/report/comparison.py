"""Runs side by side as plain numbers: settings, means over seeds, costs, learning curves. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedlama.base import InputError
from fedlama.report.outcomes import LayerCount, Outcome, Point, known_sizes, outcome
from fedlama.report.settings import Group, differing_keys, group_runs, shown_value
from fedlama.run.directory import Run


@dataclass(frozen=True)
class Spread:
    """A number over seeds: its mean and sample standard deviation, which one seed does not have."""

    mean: float
    deviation: float | None
    values: tuple[float, ...]  # in the order of the setting's seeds


@dataclass(frozen=True)
class Curve:
    """The score over a run, at the steps that all seeds have: mean, smallest and largest."""

    steps: list[int]
    uplink_bytes: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Setting:
    """One row of the comparison, over its finished runs; over its unfinished ones while none is finished."""

    label: str
    config: Mapping[str, Any]
    runs: tuple[Run, ...]
    unfinished: int  # runs of this setting that are not finished
    repeated: int  # runs left out because another has their seed
    finished: bool
    step: int
    iterations: int
    accuracy: Spread | None
    loss: Spread | None
    cost: float | None  # C relative to averaging everything every base interval, as each run tells
    communication_cost: float | None  # C, mean over seeds
    relative_cost: float | None  # C / C of the baseline setting
    uplink_bytes: float
    downlink_bytes: float
    statistics_bytes: float
    layers: tuple[LayerCount, ...]
    curve: Curve

    @property
    def seeds(self) -> list[int]:
        """The seeds that the numbers are over."""
        return [run.seed for run in self.runs]

    @property
    def adapts(self) -> bool:
        """Whether the policy adjusts intervals."""
        return self.config["policy.kind"] != "fedavg"


@dataclass(frozen=True)
class Comparison:
    """Settings in order of first appearance."""

    settings: tuple[Setting, ...]
    baseline: Setting | None  # the 100 % of `relative_cost`: the one asked for, otherwise that of the largest C
    metric: str  # "accuracy", or "loss" where no run has an accuracy
    differences: dict[str, list[str]]  # beside the policy: key → its values

    def score(self, setting: Setting) -> Spread | None:
        """The number that the settings are compared by."""
        return setting.accuracy if self.metric == "accuracy" else setting.loss


def compare(
    runs: Sequence[Run], *, labels: Mapping[Path, str] | None = None, baseline: str | None = None
) -> Comparison:
    """Group runs into settings and work out what each reached and cost.

    `labels` names settings by their run directories, in place of their policies; `baseline` is the label of the
    setting whose cost is 100 %, by default the most expensive one.
    """
    if not runs:
        raise InputError("there is no run to compare")
    groups, sizes = group_runs(runs, labels), known_sizes(runs)
    outcomes = [_one_per_seed([outcome(run, sizes) for run in group.runs]) for group in groups]
    has_accuracy = any(one.accuracy is not None for members in outcomes for one in members)
    metric = "accuracy" if has_accuracy or not any(one.points for members in outcomes for one in members) else "loss"
    settings = [_setting(group, members, metric) for group, members in zip(groups, outcomes, strict=True)]
    position = _baseline_position(settings, baseline)
    whole = 0.0 if position is None else settings[position].communication_cost or 0.0
    settings = [replace(setting, relative_cost=_ratio(setting.communication_cost, whole)) for setting in settings]
    base = None if position is None else settings[position]
    return Comparison(tuple(settings), base, metric, _differences(groups))


def _baseline_position(settings: Sequence[Setting], label: str | None) -> int | None:
    costs = [setting.communication_cost or 0.0 for setting in settings]
    if label is None:
        return costs.index(max(costs)) if any(costs) else None
    labels = [setting.label for setting in settings]
    if label not in labels:
        raise InputError(f"baseline {label!r} is none of the settings: {', '.join(labels)}")
    return labels.index(label)


def _one_per_seed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The run of each seed that came furthest: a second copy of a run would fake agreement between seeds."""
    best: dict[int, Outcome] = {}
    for one in outcomes:
        other = best.get(one.run.seed)
        if other is None or (one.finished, one.step) > (other.finished, other.step):
            best[one.run.seed] = one
    return [best[seed] for seed in sorted(best)]


def _setting(group: Group, outcomes: Sequence[Outcome], metric: str) -> Setting:
    finished = [one for one in outcomes if one.finished]
    counted = finished or [one for one in outcomes if one.points] or list(outcomes)
    return Setting(
        label=group.label,
        config=group.config,
        runs=tuple(one.run for one in counted),
        unfinished=len(outcomes) - len(finished),
        repeated=len(group.runs) - len(outcomes),
        finished=bool(finished),
        step=min(one.step for one in counted),
        iterations=counted[0].iterations,
        accuracy=_spread([one.accuracy for one in counted]),
        loss=_spread([one.loss for one in counted]),
        cost=_mean([_own_cost(one.run) for one in counted]),
        communication_cost=_mean([one.communication_cost for one in counted]),
        relative_cost=None,
        uplink_bytes=fmean(one.uplink_bytes for one in counted),
        downlink_bytes=fmean(one.downlink_bytes for one in counted),
        statistics_bytes=fmean(one.statistics_bytes for one in counted),
        layers=_mean_layers(counted),
        curve=_curve([one.points for one in counted], metric),
    )


def _own_cost(run: Run) -> float | None:
    if run.summary is not None:
        return run.summary["cost"]
    return run.records[-1]["cost"] if run.records else None


def _mean_layers(outcomes: Sequence[Outcome]) -> tuple[LayerCount, ...]:
    names = [layer.name for layer in outcomes[0].layers]
    same = [one.layers for one in outcomes if [layer.name for layer in one.layers] == names]
    return tuple(
        LayerCount(
            name=layers[0].name,
            size=layers[0].size,
            aggregations=fmean(layer.aggregations for layer in layers),
            uplink_bytes=_mean([layer.uplink_bytes for layer in layers]),
        )
        for layers in zip(*same, strict=True)
    )


def _curve(runs: Sequence[Sequence[Point]], metric: str) -> Curve:
    scored = [{point.step: point for point in points if getattr(point, metric) is not None} for points in runs]
    steps = sorted(set.intersection(*(set(points) for points in scored)))
    scores = [[getattr(points[step], metric) for points in scored] for step in steps]
    return Curve(
        steps=steps,
        uplink_bytes=[fmean(points[step].uplink_bytes for points in scored) for step in steps],
        mean=[fmean(values) for values in scores],
        low=[min(values) for values in scores],
        high=[max(values) for values in scores],
    )


def _spread(values: Sequence[float | None]) -> Spread | None:
    """None unless every seed has the number: a mean over those that happen to have one says nothing."""
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None
    return Spread(fmean(numbers), stdev(numbers) if len(numbers) > 1 else None, tuple(numbers))


def _mean(values: Sequence[float | None]) -> float | None:
    spread = _spread(values)
    return None if spread is None else spread.mean


def _ratio(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole


def _differences(groups: Sequence[Group]) -> dict[str, list[str]]:
    """What else the settings differ in, unless their labels say it: no fair comparison of policies has any."""
    keys = differing_keys(group.config for group in groups)
    unsaid = [key for key in keys if not key.startswith("policy.") and not any(f" {key}=" in g.label for g in groups)]
    return {key: list(dict.fromkeys(shown_value(group.config.get(key)) for group in groups)) for key in unsaid}
