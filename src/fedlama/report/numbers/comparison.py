"""Runs side by side as plain numbers: settings, means over seeds, costs, learning curves. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from fedlama.base import InputError
from fedlama.report.numbers.outcomes import LayerCount, Outcome, Point, known_sizes, outcome
from fedlama.report.numbers.settings import SettingRuns, differing_keys, setting_runs, shown_value
from fedlama.run.codecs import NO_CODEC
from fedlama.run.config import Config
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
    config: Config  # of its first run
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
    curve: Curve  # of the score that the settings are compared by
    test_loss: Curve
    training_loss: Curve
    seconds: float | None  # what a training took, mean over seeds

    @property
    def seeds(self) -> list[int]:
        """The seeds that the numbers are over."""
        return [run.seed for run in self.runs]

    @property
    def base_interval(self) -> int:
        """τ′ of the policy."""
        return self.config.policy.steps_between_averages

    @property
    def adapts(self) -> bool:
        """Whether this is anything but plain FedAvg: another policy, coded messages or another server rule."""
        config = self.config
        is_coded = config.uplink.codec != NO_CODEC or config.downlink.codec != NO_CODEC
        return config.policy.kind != "fedavg" or is_coded or config.server.rule != "mean"


@dataclass(frozen=True)
class Comparison:
    """Settings in order of first appearance."""

    settings: tuple[Setting, ...]
    baseline: Setting | None  # the 100 % of `relative_cost`: the one asked for, otherwise that of the largest C
    metric: str  # "accuracy", or "loss" where no run has an accuracy
    differences: dict[str, list[str]]  # beside the policy: key → its values

    def score(self, setting: Setting) -> Spread | None:
        """The number that the settings are compared by."""
        if self.metric == "accuracy":
            return setting.accuracy
        return setting.loss

    @property
    def sign(self) -> int:
        """1 where more of the score is better, −1 where less is."""
        if self.metric == "accuracy":
            return 1
        return -1


def compare(
    runs: Sequence[Run],
    *,
    labels: Mapping[Path, str] | None = None,
    baseline: str | None = None,
) -> Comparison:
    """Group runs into settings and work out what each reached and cost.

    Arguments:
        runs: finished or not; those that differ in nothing but their seed are one setting.
        labels: names of settings by run directory, in place of their policies.
        baseline: the label of the setting whose cost is 100 %; by default the most expensive one.
    """
    if not runs:
        raise InputError("there is no run to compare")

    groups = setting_runs(runs, labels)
    sizes = known_sizes(runs)
    outcomes: list[list[Outcome]] = []
    for group in groups:
        every = [outcome(run, sizes) for run in group.runs]
        outcomes.append(_one_per_seed(every))

    metric = _metric(outcomes)
    settings: list[Setting] = []
    for group, members in zip(groups, outcomes, strict=True):
        settings.append(_setting(group, members, metric))

    position = _baseline_position(settings, baseline)
    if position is None:
        return Comparison(tuple(settings), None, metric, _differences(groups))

    whole = settings[position].communication_cost
    related = [_related(setting, whole) for setting in settings]
    return Comparison(tuple(related), related[position], metric, _differences(groups))


def _metric(outcomes: Sequence[Sequence[Outcome]]) -> str:
    """The loss counts only where something was evaluated and nothing has an accuracy."""
    evaluated = False
    for members in outcomes:
        for one in members:
            if one.accuracy is not None:
                return "accuracy"
            if one.points:
                evaluated = True
    return "loss" if evaluated else "accuracy"


def _baseline_position(settings: Sequence[Setting], label: str | None) -> int | None:
    if label is not None:
        labels = [setting.label for setting in settings]
        if label not in labels:
            raise InputError(f"baseline {label!r} is none of the settings: {', '.join(labels)}")
        return labels.index(label)

    costs = [setting.communication_cost or 0.0 for setting in settings]
    if not any(costs):
        return None
    return costs.index(max(costs))


def _related(setting: Setting, whole: float | None) -> Setting:
    """The setting with its cost as a share of the baseline's."""
    if setting.communication_cost is None or not whole:
        return setting
    return replace(setting, relative_cost=setting.communication_cost / whole)


def _one_per_seed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The run of each seed that came furthest: a second copy of a run would fake agreement between seeds."""
    best: dict[int, Outcome] = {}
    for one in outcomes:
        seed = one.run.seed
        if seed not in best or _came_further(one, best[seed]):
            best[seed] = one
    return [best[seed] for seed in sorted(best)]


def _came_further(one: Outcome, other: Outcome) -> bool:
    if one.finished != other.finished:
        return one.finished
    return one.step > other.step


def _setting(group: SettingRuns, outcomes: Sequence[Outcome], metric: str) -> Setting:
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
        cost=_mean([one.cost for one in counted]),
        communication_cost=_mean([one.communication_cost for one in counted]),
        relative_cost=None,
        uplink_bytes=fmean(one.uplink_bytes for one in counted),
        downlink_bytes=fmean(one.downlink_bytes for one in counted),
        statistics_bytes=fmean(one.statistics_bytes for one in counted),
        layers=_mean_layers(counted),
        curve=_curve([one.points for one in counted], metric),
        test_loss=_curve([one.points for one in counted], "loss"),
        training_loss=_curve([one.training for one in counted], "loss"),
        seconds=_mean([one.seconds for one in counted]),
    )


def _mean_layers(outcomes: Sequence[Outcome]) -> tuple[LayerCount, ...]:
    """Means over the runs that have the layers of the first."""
    names = [layer.name for layer in outcomes[0].layers]
    same = [one.layers for one in outcomes if [layer.name for layer in one.layers] == names]

    means: list[LayerCount] = []
    for layers in zip(*same, strict=True):
        mean = LayerCount(
            name=layers[0].name,
            size=layers[0].size,
            aggregations=fmean(layer.aggregations for layer in layers),
            uplink_bytes=_mean([layer.uplink_bytes for layer in layers]),
            adaptive=layers[0].adaptive,
        )
        means.append(mean)
    return tuple(means)


def _curve(runs: Sequence[Sequence[Point]], metric: str) -> Curve:
    scored: list[dict[int, Point]] = []
    for points in runs:
        scored.append({point.step: point for point in points if point.score(metric) is not None})

    common = set(scored[0])
    for points in scored[1:]:
        common &= set(points)

    curve = Curve(steps=sorted(common), uplink_bytes=[], mean=[], low=[], high=[])
    for step in curve.steps:
        sent: list[float] = []
        scores: list[float] = []
        for points in scored:
            score = points[step].score(metric)
            assert score is not None
            scores.append(score)
            sent.append(points[step].uplink_bytes)

        curve.uplink_bytes.append(fmean(sent))
        curve.mean.append(fmean(scores))
        curve.low.append(min(scores))
        curve.high.append(max(scores))
    return curve


def _spread(values: Sequence[float | None]) -> Spread | None:
    """None unless every seed has the number: a mean over those that happen to have one says nothing."""
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None

    deviation = None
    if len(numbers) > 1:
        deviation = stdev(numbers)
    return Spread(
        mean=fmean(numbers),
        deviation=deviation,
        values=tuple(numbers),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    spread = _spread(values)
    if spread is None:
        return None
    return spread.mean


def _differences(groups: Sequence[SettingRuns]) -> dict[str, list[str]]:
    """What else the settings differ in, unless their labels say it: no fair comparison of policies has any."""
    found: dict[str, list[str]] = {}
    for key in differing_keys(group.values for group in groups):
        if key.startswith("policy."):
            continue
        if any(f" {key}=" in group.label for group in groups):
            continue
        values: dict[str, None] = {}  # each once
        for group in groups:
            value = shown_value(group.values.get(key))
            values[value] = None
        found[key] = list(values)
    return found
