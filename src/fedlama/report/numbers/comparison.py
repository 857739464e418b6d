"""Runs side by side as plain numbers: settings, means over seeds, costs, learning curves. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedlama.base import InputError, printable, shown
from fedlama.report.numbers.looks import looks_of
from fedlama.report.numbers.outcomes import LOSS, Outcome, known_sizes, outcome
from fedlama.report.numbers.reading import everyone_trains
from fedlama.report.numbers.seeds import Spread
from fedlama.report.numbers.setting import ComparedSetting, one_per_seed, setting_of
from fedlama.report.numbers.settings import (
    SettingRuns,
    differing_keys,
    setting_runs,
    shown_value,
)
from fedlama.run.directory import UNTIL_ROUND
from fedlama.run.recorded import RecordedRun
from fedlama.training.records import Measure


@dataclass(frozen=True)
class RunComparison:
    """Settings in order of first appearance."""

    settings: tuple[ComparedSetting, ...]
    # The 100 % of `relative_cost`: the one asked for, otherwise that of the largest C
    baseline: ComparedSetting | None
    metric: str  # its name; "loss" where no run has a metric
    differences: dict[str, list[str]]  # beside the policy: key → its values
    higher_is_better: bool = True
    # What of the user's own is not the same code in all of these runs
    changed_code: tuple[str, ...] = ()

    def score(self, setting: ComparedSetting) -> Spread | None:
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
    runs: Sequence[RecordedRun],
    *,
    labels: Mapping[Path, str] | None = None,
    baseline: str | None = None,
    baseline_may_lack: bool = False,
) -> RunComparison:
    """Group runs into settings and work out what each reached and cost.

    Arguments:
        runs: finished or not; those that differ in nothing but their seed are one setting.
        labels: names of settings by run directory, in place of their policies.
        baseline: the label of the setting whose cost is 100 %; by default the most expensive one, and of
            equals the one that sends most.
        baseline_may_lack: whether there need be no run of that setting; without one, nothing is put in relation to it.
    """
    if not runs:
        raise InputError("there is no run to compare")

    groups = setting_runs(runs, labels)
    sizes = known_sizes(runs)
    outcomes: list[list[Outcome]] = []
    for group in groups:
        every = [outcome(run, sizes) for run in group.runs]
        counted = one_per_seed(every)
        outcomes.append(counted)

    measure = _measure(outcomes)
    settings: list[ComparedSetting] = []
    for group, members in zip(groups, outcomes, strict=True):
        settings.append(setting_of(group, members, measure.name))
    looks = looks_of([(setting.label, setting.config) for setting in settings])
    settings = [
        replace(setting, look=look)
        for setting, look in zip(settings, looks, strict=True)
    ]

    chosen = None
    position = _baseline_position(settings, baseline, may_lack=baseline_may_lack)
    if position is not None:
        whole = settings[position].communication_cost
        settings = [_related(setting, whole) for setting in settings]
        chosen = settings[position]
    return RunComparison(
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


def _baseline_position(
    settings: Sequence[ComparedSetting], label: str | None, *, may_lack: bool
) -> int | None:
    if label is not None:
        labels = [setting.label for setting in settings]
        if label in labels:
            return labels.index(label)
        if may_lack:
            return None
        known = ", ".join(labels)
        raise InputError(f"baseline {shown(label)} is none of the settings: {known}")

    costs = [_cost_and_bytes(setting) for setting in settings]
    most = max(costs)
    cost, _ = most
    if not cost:
        return None
    return costs.index(most)


def _cost_and_bytes(setting: ComparedSetting) -> tuple[float, float]:
    """What settings are ordered by: a code that averages as often as FedAvg costs as much, but sends fewer bytes."""
    return setting.communication_cost or 0.0, setting.uplink_bytes


def _related(setting: ComparedSetting, whole: float | None) -> ComparedSetting:
    """The setting with its cost as a share of the baseline's."""
    cost = setting.communication_cost
    if cost is None or not whole:
        return setting
    return replace(setting, relative_cost=cost / whole)


def _differences(groups: Sequence[SettingRuns]) -> dict[str, list[str]]:
    """What else the settings differ in, unless their labels say it: no fair comparison of policies has any."""
    found: dict[str, list[str]] = {}
    for key in differing_keys(group.values for group in groups):
        if key.startswith("policy."):
            continue
        if key == "participation.window" and _everyone_trains_in_all(groups):
            continue
        if any(f" {key}=" in group.label for group in groups):
            continue
        values: dict[str, None] = {}  # each once
        for group in groups:
            value = shown_value(group.values.get(key))
            values[value] = None
        found[key] = list(values)
    return found


def _everyone_trains_in_all(groups: Sequence[SettingRuns]) -> bool:
    return all(everyone_trains(group.config) for group in groups)


def _changed_code(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """What has another hash in one of these runs than in another."""
    hashes: dict[str, set[str]] = {}
    for run in runs:
        for name, one in run.config.hashes.items():
            if UNTIL_ROUND in name:
                continue
            found = hashes.setdefault(name, set())
            found.add(one)

    changed: list[str] = []
    for name, found in hashes.items():
        if len(found) > 1:
            changed.append(printable(name))
    return tuple(changed)
