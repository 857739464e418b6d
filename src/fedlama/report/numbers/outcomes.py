"""What came of one run, finished or not, in the same words for both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedlama.run.recorded import RecordedRun
from fedlama.training.records import ClientScores, Record, Summary

SizesByLayers = Mapping[tuple[str, ...], Sequence[int]]  # layer names → their sizes

LOSS = "loss"  # what runs without a metric are compared by
MAX_SECONDS = 1e10  # three centuries


@dataclass(frozen=True)
class LayerCount:
    """One layer's account; what is not known of a run is None."""

    name: str
    size: int | None
    aggregations: float
    uplink_bytes: float | None
    adaptive: bool | None = None  # whether its interval may be lengthened
    bits: float | None = None  # for each number that a client sent, as coded


@dataclass(frozen=True)
class Point:
    """The global model where it was evaluated; bytes are all that clients sent until then."""

    step: int
    uplink_bytes: float
    score: float | None  # the metric, whatever it is called
    loss: float | None

    def value(self, metric: str) -> float | None:
        """The metric or the loss, whichever the settings are compared by."""
        if metric == LOSS:
            return self.loss
        return self.score


@dataclass(frozen=True)
class Outcome:
    """One run's numbers; those of an unfinished run are the numbers so far."""

    run: RecordedRun
    finished: bool
    step: int
    iterations: int
    score: float | None  # the metric, whatever it is called
    # That of a moving average of the model, where it was evaluated beside it
    average_score: float | None
    loss: float | None
    # C relative to averaging everything every base interval, as recorded
    cost: float | None
    uplink_bytes: int
    downlink_bytes: int
    statistics_bytes: int
    layers: tuple[LayerCount, ...]
    points: tuple[Point, ...]
    training: tuple[Point, ...]  # every round, with the training loss of its clients
    seconds: float | None  # what the training took
    # How clients fare by themselves, where that was evaluated
    clients: ClientScores | None

    @property
    def communication_cost(self) -> float | None:
        """C = Σ size · aggregations (Eq. 5); of an unfinished run, as if it went on at its rate so far."""
        if not self.layers or not self.step:
            return None

        sent = 0.0
        for layer in self.layers:
            if layer.size is None:
                return None
            sent += layer.size * layer.aggregations
        return sent * self.iterations / self.step


def outcome(run: RecordedRun, sizes: SizesByLayers) -> Outcome:
    """What a run's summary says, or its records while there is none.

    Arguments:
        run: as read from its directory.
        sizes: the sizes of layers that other runs know, for a run that is not finished.
    """
    summary = run.summary
    if summary is None:
        return _unfinished(run, sizes)
    return _finished(run, summary)


def known_sizes(runs: Iterable[RecordedRun]) -> SizesByLayers:
    """Records name layers but not their sizes; a finished run of the same model knows them."""
    sizes: dict[tuple[str, ...], list[int]] = {}
    for run in runs:
        summary = run.summary
        if summary is None:
            continue
        layers = summary.layers
        names = tuple(layer.name for layer in layers)
        sizes[names] = [layer.size for layer in layers]
    return sizes


def _finished(run: RecordedRun, summary: Summary) -> Outcome:
    layers: list[LayerCount] = []
    for layer in summary.layers:
        count = LayerCount(
            name=layer.name,
            size=layer.size,
            aggregations=layer.aggregations,
            uplink_bytes=layer.uplink_bytes,
            adaptive=layer.adaptive,
        )
        layers.append(count)

    return Outcome(
        run=run,
        finished=True,
        step=summary.iterations,
        iterations=summary.iterations,
        score=finite(summary.score),
        average_score=finite(summary.average_score),
        loss=finite(summary.loss),
        cost=summary.cost,
        uplink_bytes=summary.uplink_bytes,
        downlink_bytes=summary.downlink_bytes,
        statistics_bytes=summary.statistics_bytes,
        layers=tuple(layers),
        points=_points(run.records),
        training=_training_points(run.records),
        seconds=_duration(summary),
        clients=summary.clients,
    )


def _duration(summary: Summary) -> float | None:
    """Summaries of early versions do not have it, and one from elsewhere may have any number."""
    if 0 < summary.seconds <= MAX_SECONDS:
        return summary.seconds
    return None


def _unfinished(run: RecordedRun, sizes: SizesByLayers) -> Outcome:
    records = run.records
    points = _points(records)

    step = 0
    cost = None
    if records:
        step = records[-1].step
        cost = records[-1].cost

    score = None
    loss = None
    if points:
        score = points[-1].score
        loss = points[-1].loss

    return Outcome(
        run=run,
        finished=False,
        step=step,
        iterations=run.config.train.iterations,
        score=score,
        average_score=_latest_average(records),
        loss=loss,
        cost=cost,
        uplink_bytes=sum(record.uplink_bytes for record in records),
        downlink_bytes=sum(record.downlink_bytes for record in records),
        statistics_bytes=0,
        layers=_counted_layers(records, sizes),
        points=points,
        training=_training_points(records),
        seconds=None,
        clients=_latest_clients(records),
    )


def _latest_average(records: Sequence[Record]) -> float | None:
    for record in reversed(records):
        if record.average_score is not None:
            return finite(record.average_score)
    return None


def _latest_clients(records: Sequence[Record]) -> ClientScores | None:
    for record in reversed(records):
        if record.clients is not None:
            return record.clients
    return None


def _counted_layers(
    records: Sequence[Record], sizes: SizesByLayers
) -> tuple[LayerCount, ...]:
    """κ_l counted from the records."""
    # A round that ends a cycle names every layer.
    names: list[str] = []
    for record in records:
        if len(record.due) > len(names):
            names = record.due

    aggregations = dict.fromkeys(names, 0)
    for record in records:
        for name in names:
            if name in record.due:
                aggregations[name] += 1

    # The sizes are those of a finished run of the same model, if there is one.
    known = sizes.get(tuple(names))
    counts: list[LayerCount] = []
    for place, name in enumerate(names):
        size = None
        if known is not None:
            size = known[place]
        count = LayerCount(name, size, aggregations[name], uplink_bytes=None)
        counts.append(count)
    return tuple(counts)


def _points(records: Sequence[Record]) -> tuple[Point, ...]:
    points: list[Point] = []
    sent = 0
    for record in records:
        sent += record.uplink_bytes
        if record.score is None and record.test_loss is None:
            continue
        point = Point(
            step=record.step,
            uplink_bytes=sent,
            score=finite(record.score),
            loss=finite(record.test_loss),
        )
        points.append(point)
    return tuple(points)


def _training_points(records: Sequence[Record]) -> tuple[Point, ...]:
    points: list[Point] = []
    sent = 0
    for record in records:
        sent += record.uplink_bytes
        point = Point(
            step=record.step,
            uplink_bytes=sent,
            score=None,
            loss=finite(record.loss),
        )
        points.append(point)
    return tuple(points)


def finite(value: float | None) -> float | None:
    """A number that can be averaged and drawn, or None."""
    if value is None or not math.isfinite(value):
        return None
    return value
