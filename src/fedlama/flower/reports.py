"""Reports: what a client says beside its numbers, checked, because it may say anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flwr.app import RecordDict

from fedlama.base import InputError
from fedlama.flower.packing import Packed
from fedlama.flower.wire import from_record, to_record

MAX_JSON = 1 << 20  # characters of a report
MAX_COUNTER = 1 << 62
MAX_COUNTED = 1 << 20  # in one round, beyond its steps


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a client says beside its numbers. `lost` means that its state is not what the task expects."""

    tag: str
    lost: bool = False
    loss: float = 0.0
    counters: list[int] = field(default_factory=list[int])


def report_record(report: Report, packed: Packed | None = None) -> RecordDict:
    """The content of a client's reply.

    Arguments:
        report: What it says.
        packed: The due layers; None where it has lost its state.
    """
    if packed is None:
        packed = Packed()
    return to_record(asdict(report), packed)


def read_reply(content: RecordDict, counters: int) -> tuple[Report, Packed]:
    """A client's report and its numbers, or InputError: it may send anything.

    Arguments:
        content: The reply.
        counters: How many whole-number buffers the model has.
    """
    text, packed = from_record(content)
    report = _read_report(text, counters)
    return report, packed


def _read_report(text: str, counters: int) -> Report:
    values = _report_values(text)
    tag = values.get("tag")
    lost = values.get("lost")
    loss = values.get("loss")
    numbers = values.get("counters")

    if not isinstance(tag, str) or type(lost) is not bool:
        raise InputError("the report holds values of other types")
    if not isinstance(loss, int | float) or isinstance(loss, bool):
        raise InputError("the report holds values of other types")
    # A whole number may have so many digits that it is no float.
    if type(loss) is int and abs(loss) >= MAX_COUNTER:
        raise InputError("the report holds a loss that is no number of a loss")

    if not isinstance(numbers, list):
        raise InputError("the report does not hold the model's whole-number buffers")
    if not lost and len(numbers) != counters:
        raise InputError("the report does not hold the model's whole-number buffers")
    for number in numbers:
        if type(number) is not int or abs(number) >= MAX_COUNTER:
            raise InputError(
                "the report does not hold the model's whole-number buffers"
            )
    return Report(
        tag=tag,
        lost=lost,
        loss=float(loss),
        counters=numbers,
    )


def _report_values(text: str) -> dict[str, Any]:
    if len(text) > MAX_JSON:
        raise InputError("the report is longer than a megabyte")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("the reply has no report") from None
    if not isinstance(values, dict):
        raise InputError("the reply has no report")
    return values


def check_counters(
    counters: Sequence[int], *, before: Sequence[int], steps: int
) -> None:
    """Refuse whole-number buffers that no round of so many steps could have counted to.

    The server keeps the largest: one client with a number close to `MAX_COUNTER` would have all others refused from
    the next round on, in which they count past it.

    Arguments:
        counters: A client's, after the round.
        before: Those that it was sent.
        steps: How many steps the round has.
    """
    for number, sent in zip(counters, before, strict=True):
        counted = number - sent
        if counted < 0 or counted > steps + MAX_COUNTED:
            raise InputError(
                f"a whole-number buffer went from {sent} to {number} in {steps} steps"
            )
