"""Runs side by side as plain numbers: settings, means over seeds, costs, learning curves. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from fedlama.base import InputError, printable
from fedlama.report.numbers.outcomes import (
    LOSS,
    LayerCount,
    Outcome,
    known_sizes,
    outcome,
)
from fedlama.report.numbers.reading import active_clients, config_of, everyone_trains
from fedlama.report.numbers.seeds import Curve, Spread, curve_of, mean_of, spread_of
from fedlama.report.numbers.settings import (
    SettingRuns,
    differing_keys,
    setting_runs,
    shown_value,
)
from fedlama.run.codecs import NO_CODEC
from fedlama.run.config import Config
from fedlama.run.directory import UNTIL_ROUND
from fedlama.run.recorded import Run
from fedlama.training.records import ClientScores, Measure, bits_per_number


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
    score: Spread | None  # the metric, whatever it is called
    loss: Spread | None
    # C relative to averaging everything every base interval, as recorded
    cost: float | None
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
    # Of each seed: how clients fare by themselves, where that was evaluated
    clients: tuple[ClientScores, ...]

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
        return (
            config.policy.kind != "fedavg" or is_coded or config.server.rule != "mean"
        )


@dataclass(frozen=True)
class Comparison:
    """Settings in order of first appearance."""

    settings: tuple[Setting, ...]
    # The 100 % of `relative_cost`: the one asked for, otherwise that of the largest C
    baseline: Setting | None
    metric: str  # its name; "loss" where no run has a metric
    differences: dict[str, list[str]]  # beside the policy: key → its values
    higher_is_better: bool = True
    # What of the user's own is not the same code in all of these runs
    changed_code: tuple[str, ...] = ()

    def score(self, setting: Setting) -> Spread | None:
        """The number that the settings are compared by."""
        if self.metric == LOSS:
            return setting.loss
        return setting.score

    @property
    def sign(self) -> int:
        """1 where more of the score is better, −1 where less is."""
        if self.higher_is_better:
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

    measure = _measure(outcomes)
    settings: list[Setting] = []
    for group, members in zip(groups, outcomes, strict=True):
        settings.append(_setting(group, members, measure.name))

    chosen = None
    position = _baseline_position(settings, baseline)
    if position is not None:
        whole = settings[position].communication_cost
        settings = [_related(setting, whole) for setting in settings]
        chosen = settings[position]
    return Comparison(
        settings=tuple(settings),
        baseline=chosen,
        metric=printable(measure.name),
        differences=_differences(groups),
        higher_is_better=measure.higher_is_better,
        changed_code=_changed_code(runs),
    )


def _measure(outcomes: Sequence[Sequence[Outcome]]) -> Measure:
    """What settings are compared by: the loss only where something was evaluated and nothing has a metric."""
    evaluated = False
    for members in outcomes:
        for one in members:
            if one.score is not None:
                return one.run.measure
            if one.points:
                evaluated = True
    if evaluated:
        return Measure(LOSS, higher_is_better=False)
    return outcomes[0][0].run.measure


def _baseline_position(settings: Sequence[Setting], label: str | None) -> int | None:
    if label is not None:
        labels = [setting.label for setting in settings]
        if label not in labels:
            known = ", ".join(labels)
            raise InputError(f"baseline {label!r} is none of the settings: {known}")
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
        score=spread_of([one.score for one in counted]),
        loss=spread_of([one.loss for one in counted]),
        cost=mean_of([one.cost for one in counted]),
        communication_cost=mean_of([one.communication_cost for one in counted]),
        relative_cost=None,
        uplink_bytes=fmean(one.uplink_bytes for one in counted),
        downlink_bytes=fmean(one.downlink_bytes for one in counted),
        statistics_bytes=fmean(one.statistics_bytes for one in counted),
        layers=_mean_layers(counted, active_clients(group.config)),
        curve=curve_of([one.points for one in counted], metric),
        test_loss=curve_of([one.points for one in counted], "loss"),
        training_loss=curve_of([one.training for one in counted], "loss"),
        seconds=mean_of([one.seconds for one in counted]),
        clients=tuple(one.clients for one in counted if one.clients is not None),
    )


def _mean_layers(
    outcomes: Sequence[Outcome], clients: int | None
) -> tuple[LayerCount, ...]:
    """Means over the runs that have the layers of the first.

    Arguments:
        outcomes: Of the runs.
        clients: How many of them send at a time, where that is known.
    """
    names = [layer.name for layer in outcomes[0].layers]
    same = [
        one.layers for one in outcomes if [layer.name for layer in one.layers] == names
    ]

    means: list[LayerCount] = []
    for layers in zip(*same, strict=True):
        first = layers[0]
        aggregations = fmean(layer.aggregations for layer in layers)
        uplink_bytes = mean_of([layer.uplink_bytes for layer in layers])
        mean = LayerCount(
            name=first.name,
            size=first.size,
            aggregations=aggregations,
            uplink_bytes=uplink_bytes,
            adaptive=first.adaptive,
            bits=bits_per_number(
                uplink_bytes, first.size, aggregations=aggregations, clients=clients
            ),
        )
        means.append(mean)
    return tuple(means)


def _differences(groups: Sequence[SettingRuns]) -> dict[str, list[str]]:
    """What else the settings differ in, unless their labels say it: no fair comparison of policies has any."""
    found: dict[str, list[str]] = {}
    for key in differing_keys(group.values for group in groups):
        if key.startswith("policy."):
            continue
        if key == "participation.window" and all(
            everyone_trains(group.config) for group in groups
        ):
            continue
        if any(f" {key}=" in group.label for group in groups):
            continue
        values: dict[str, None] = {}  # each once
        for group in groups:
            value = shown_value(group.values.get(key))
            values[value] = None
        found[key] = list(values)
    return found


def _changed_code(runs: Sequence[Run]) -> tuple[str, ...]:
    """What has another hash in one of these runs than in another."""
    hashes: dict[str, set[str]] = {}
    for run in runs:
        config = config_of(run)
        for name, one in config.hashes.items():
            if UNTIL_ROUND not in name:
                hashes.setdefault(name, set()).add(one)

    changed: list[str] = []
    for name, found in hashes.items():
        if len(found) > 1:
            changed.append(printable(name))
    return tuple(changed)
