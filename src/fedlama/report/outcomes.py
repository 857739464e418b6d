"""What came of one run, finished or not, in the same words for both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fedlama.base import InputError
from fedlama.run.directory import Run

Sizes = Mapping[tuple[str, ...], Sequence[int]]  # layer names → their sizes


@dataclass(frozen=True)
class LayerCount:
    """One layer's account; what a run does not tell is None."""

    name: str
    size: int | None
    aggregations: float
    uplink_bytes: float | None


@dataclass(frozen=True)
class Point:
    """The global model where it was evaluated; bytes are all that clients sent until then."""

    step: int
    uplink_bytes: float
    accuracy: float | None
    loss: float | None


@dataclass(frozen=True)
class Outcome:
    """One run's numbers; those of an unfinished run are the numbers so far."""

    run: Run
    finished: bool
    step: int
    iterations: int
    accuracy: float | None
    loss: float | None
    uplink_bytes: int
    downlink_bytes: int
    statistics_bytes: int
    layers: tuple[LayerCount, ...]
    points: tuple[Point, ...]

    @property
    def communication_cost(self) -> float | None:
        """C = Σ size · aggregations (Eq. 5); of an unfinished run, as if it went on at its rate so far."""
        sizes = [layer.size for layer in self.layers]
        if not sizes or None in sizes or not self.step:
            return None
        sent = sum((layer.size or 0) * layer.aggregations for layer in self.layers)
        return sent * self.iterations / self.step


def outcome(run: Run, sizes: Sizes) -> Outcome:
    """What a run's summary says, or its records while there is none."""
    try:
        return _finished(run, run.summary) if run.summary is not None else _unfinished(run, sizes)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{run.path}: its summary.json or rounds.jsonl is not one of a run ({error!r})") from None


def known_sizes(runs: Iterable[Run]) -> Sizes:
    """Records name layers but not their sizes; a finished run of the same model knows them."""
    sizes: dict[tuple[str, ...], list[int]] = {}
    for run in runs:
        with suppress(KeyError, TypeError):  # `outcome` says what is wrong with a summary, and with which
            layers = run.summary["layers"] if run.summary is not None else []
            sizes[tuple(layer["name"] for layer in layers)] = [layer["size"] for layer in layers]
    return sizes


def _finished(run: Run, summary: Mapping[str, Any]) -> Outcome:
    return Outcome(
        run=run,
        finished=True,
        step=summary["iterations"],
        iterations=summary["iterations"],
        accuracy=known(summary["accuracy"]),
        loss=known(summary["loss"]),
        uplink_bytes=summary["uplink_bytes"],
        downlink_bytes=summary["downlink_bytes"],
        statistics_bytes=summary.get("statistics_bytes", 0),
        layers=tuple(
            LayerCount(layer["name"], layer["size"], layer["aggregations"], layer.get("uplink_bytes"))
            for layer in summary["layers"]
        ),
        points=_points(run),
    )


def _unfinished(run: Run, sizes: Sizes) -> Outcome:
    points = _points(run)
    latest = points[-1] if points else Point(0, 0, None, None)
    return Outcome(
        run=run,
        finished=False,
        step=run.records[-1]["step"] if run.records else 0,
        iterations=run.config["train"]["iterations"],
        accuracy=latest.accuracy,
        loss=latest.loss,
        uplink_bytes=sum(record["uplink_bytes"] for record in run.records),
        downlink_bytes=sum(record["downlink_bytes"] for record in run.records),
        statistics_bytes=0,
        layers=_counted_layers(run, sizes),
        points=points,
    )


def _counted_layers(run: Run, sizes: Sizes) -> tuple[LayerCount, ...]:
    """κ_l counted from the records; a round that ends a cycle names every layer."""
    names = max((record["due"] for record in run.records), key=len, default=[])
    known_here = sizes.get(tuple(names), [None] * len(names))
    counts = [sum(name in record["due"] for record in run.records) for name in names]
    return tuple(LayerCount(*row, uplink_bytes=None) for row in zip(names, known_here, counts, strict=True))


def _points(run: Run) -> tuple[Point, ...]:
    sent = accumulate(record["uplink_bytes"] for record in run.records)
    return tuple(
        Point(record["step"], uplink_bytes, known(record["accuracy"]), known(record.get("test_loss")))
        for record, uplink_bytes in zip(run.records, sent, strict=True)
        if record["accuracy"] is not None or record.get("test_loss") is not None
    )


def known(value: float | None) -> float | None:
    """A number that can be averaged and drawn, or None."""
    return value if value is not None and math.isfinite(value) else None
