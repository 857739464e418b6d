"""One setting of a comparison: what its runs reached and sent, as means over their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedlama.report.numbers.outcomes import LayerCount, Outcome
from fedlama.report.numbers.reading import active_clients, sends_plainly
from fedlama.report.numbers.seeds import Curve, Spread, curve_of, mean_of, spread_of
from fedlama.report.numbers.settings import SettingRuns
from fedlama.run.config import Config
from fedlama.run.recorded import RecordedRun
from fedlama.training.records import ClientScores, bits_per_number


@dataclass(frozen=True)
class ComparedSetting:
    """One row of the comparison, over its finished runs; over its unfinished ones while none is finished."""

    label: str
    config: Config  # of its first run
    runs: tuple[RecordedRun, ...]
    unfinished: int  # runs of this setting that are not finished
    repeated: int  # runs left out because another has their seed
    finished: bool
    step: int
    iterations: int
    score: Spread | None  # the metric, whatever it is called
    # The metric of a moving average of the model, by the seeds that evaluated one beside it
    average_scores: Mapping[int, float]
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
    look: int = 0  # its place in the palette, see `looks.py`

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
        if self.config.policy.fedavg_interval is None:
            return True
        return not sends_plainly(self.config)


def one_per_seed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The run of each seed that came furthest: a second copy of a run would fake agreement between seeds."""
    best: dict[int, Outcome] = {}
    for one in outcomes:
        seed = one.run.seed
        before = best.get(seed)
        if before is None or _came_further(one, before):
            best[seed] = one
    return [best[seed] for seed in sorted(best)]


def _came_further(one: Outcome, other: Outcome) -> bool:
    if one.finished != other.finished:
        return one.finished
    return one.step > other.step


def setting_of(
    group: SettingRuns, outcomes: Sequence[Outcome], metric: str
) -> ComparedSetting:
    """One row of the comparison.

    Arguments:
        group: the runs of the setting.
        outcomes: what came of them, one for each seed.
        metric: the name of the score that settings are compared by.
    """
    finished = [one for one in outcomes if one.finished]
    counted = finished
    if not counted:
        counted = [one for one in outcomes if one.points]
    if not counted:
        counted = list(outcomes)

    active = active_clients(group.config)
    points = [one.points for one in counted]
    training = [one.training for one in counted]
    clients: list[ClientScores] = []
    average_scores: dict[int, float] = {}
    for one in counted:
        if one.clients is not None:
            clients.append(one.clients)
        if one.average_score is not None:
            average_scores[one.run.seed] = one.average_score
    return ComparedSetting(
        label=group.label,
        config=group.config,
        runs=tuple(one.run for one in counted),
        unfinished=len(outcomes) - len(finished),
        repeated=len(group.runs) - len(outcomes),
        finished=bool(finished),
        step=min(one.step for one in counted),
        iterations=counted[0].iterations,
        score=spread_of([one.score for one in counted]),
        average_scores=average_scores,
        loss=spread_of([one.loss for one in counted]),
        cost=mean_of([one.cost for one in counted]),
        communication_cost=mean_of([one.communication_cost for one in counted]),
        relative_cost=None,
        uplink_bytes=fmean(one.uplink_bytes for one in counted),
        downlink_bytes=fmean(one.downlink_bytes for one in counted),
        statistics_bytes=fmean(one.statistics_bytes for one in counted),
        layers=_mean_layers(counted, active),
        curve=curve_of(points, metric),
        test_loss=curve_of(points, "loss"),
        training_loss=curve_of(training, "loss"),
        seconds=mean_of([one.seconds for one in counted]),
        clients=tuple(clients),
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
    same: list[Sequence[LayerCount]] = []
    for one in outcomes:
        own = [layer.name for layer in one.layers]
        if own == names:
            same.append(one.layers)

    means: list[LayerCount] = []
    for layers in zip(*same, strict=True):
        first = layers[0]
        aggregations = fmean(layer.aggregations for layer in layers)
        uplink_bytes = mean_of([layer.uplink_bytes for layer in layers])
        bits = bits_per_number(
            uplink_bytes,
            first.size,
            aggregations=aggregations,
            clients=clients,
        )
        mean = LayerCount(
            name=first.name,
            size=first.size,
            aggregations=aggregations,
            uplink_bytes=uplink_bytes,
            adaptive=first.adaptive,
            bits=bits,
        )
        means.append(mean)
    return tuple(means)
