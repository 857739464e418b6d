"""Runs as typed values: the one place of the report that knows the keys of `rounds.jsonl` and `summary.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedlama.base import InputError
from fedlama.run.config import Config, parse_config
from fedlama.run.directory import Run
from fedlama.training.records import LayerSummary, Record


@dataclass(frozen=True)
class RunSummary:
    """What a finished run says of itself."""

    accuracy: float | None
    loss: float | None
    cost: float  # C relative to averaging everything every base interval
    uplink_bytes: int
    downlink_bytes: int
    statistics_bytes: int
    iterations: int
    layers: list[LayerSummary]


def config_of(run: Run) -> Config:
    """The configuration of a run, checked."""
    return parse_config(run.config, str(run.path / "config.toml"))


def records_of(run: Run) -> list[Record]:
    """The rounds of a run."""
    try:
        return [_record(entry) for entry in run.records]
    except (KeyError, TypeError) as error:
        raise InputError(f"{run.path}: its rounds.jsonl is not one of a run ({error!r})") from None


def summary_of(run: Run) -> RunSummary | None:
    """The summary of a run; None while it is going."""
    if run.summary is None:
        return None
    try:
        return _summary(run.summary)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{run.path}: its summary.json is not one of a run ({error!r})") from None


def _record(entry: dict[str, Any]) -> Record:
    return Record(
        round=entry["round"],
        step=entry["step"],
        cycle=entry["cycle"],
        due=entry["due"],
        intervals=entry["intervals"],
        discrepancy=entry["discrepancy"],
        loss=entry["loss"],
        test_loss=entry.get("test_loss"),
        accuracy=entry["accuracy"],
        uplink_bytes=entry["uplink_bytes"],
        downlink_bytes=entry["downlink_bytes"],
        cost=entry["cost"],
        excluded=entry.get("excluded", []),
    )


def _summary(entry: dict[str, Any]) -> RunSummary:
    return RunSummary(
        accuracy=entry["accuracy"],
        loss=entry["loss"],
        cost=entry["cost"],
        uplink_bytes=entry["uplink_bytes"],
        downlink_bytes=entry["downlink_bytes"],
        statistics_bytes=entry.get("statistics_bytes", 0),
        iterations=entry["iterations"],
        layers=[_layer(layer) for layer in entry["layers"]],
    )


def _layer(entry: dict[str, Any]) -> LayerSummary:
    # Summaries of earlier versions have no bytes of layers.
    return LayerSummary(
        name=entry["name"],
        size=entry["size"],
        adaptive=entry["adaptive"],
        aggregations=entry["aggregations"],
        interval=entry["interval"],
        uplink_bytes=entry.get("uplink_bytes"),  # pyright: ignore
        downlink_bytes=entry.get("downlink_bytes"),  # pyright: ignore
    )
