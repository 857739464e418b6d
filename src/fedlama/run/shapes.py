"""What a record and a summary must look like before anybody computes with them: files come from anywhere."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedlama.base import InputError

# Whole numbers that JSON, float64 and pictures can all hold
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Positive = Annotated[int, Field(ge=1, le=1 << 62)]
Number = Annotated[float, Field(ge=-1e100, le=1e100)]


class _Shape(BaseModel):
    """Fields that other versions add are let through."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class RecordShape(_Shape):
    """A line of rounds.jsonl."""

    round: Positive
    step: Positive
    cycle: Positive
    due: list[str]
    intervals: list[Positive]
    discrepancy: list[Annotated[Number, Field(ge=0)] | None]
    loss: Number
    test_loss: Number | None = None
    accuracy: Number | None
    uplink_bytes: Count
    downlink_bytes: Count
    cost: Number
    excluded: list[dict[str, Any]] = []


class LayerShape(_Shape):
    """An entry of a summary's `layers`."""

    name: str
    size: Positive
    adaptive: bool
    aggregations: Count
    interval: Positive
    uplink_bytes: Count | None = None
    downlink_bytes: Count | None = None


class SummaryShape(_Shape):
    """A summary.json."""

    accuracy: Number | None
    loss: Number
    cost: Number
    uplink_bytes: Count
    downlink_bytes: Count
    statistics_bytes: Count = 0
    iterations: Positive
    seed: Count
    layers: list[LayerShape]


class TimingShape(_Shape):
    """A line of timings.jsonl."""

    round: Positive
    seconds: Number


def check_shape(shape: type[BaseModel], value: Any, where: str) -> None:
    """Refuse what is not of this shape, in a sentence that names the first field that is wrong."""
    try:
        shape.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{where} is not one of a run: {field or 'it'}: {first['msg']}") from None
