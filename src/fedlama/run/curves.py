"""The picture of runs in a notebook: what they are judged by, over bytes and over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fedlama.base import InputError
from fedlama.training.records import Measure, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEBIBYTE = 1 << 20


def draw_curves(
    runs: Mapping[str, Sequence[Record]], measure: Measure | None
) -> Figure:
    """Two charts side by side: the metric over all bytes sent up and down, and over steps.

    Arguments:
        runs: The records of each run, by the name that the legend gives it.
        measure: What they are judged by; None for the test loss.
    """
    from matplotlib.figure import Figure  # slow to import, so only here

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    over_bytes, over_steps = figure.subplots(1, 2, sharey=True)
    for name, records in runs.items():
        _draw(over_bytes, over_steps, name, records, measure)

    what = "test loss"
    if measure is not None:
        what = measure.name
    if measure is not None and not measure.higher_is_better:
        what += " (lower is better)"
    over_bytes.set(xlabel="MiB up and down", ylabel=what)
    over_steps.set(xlabel="steps")

    for axes in (over_bytes, over_steps):
        axes.grid(alpha=0.3)
    if len(runs) > 1:
        over_steps.legend()
    return figure


def _draw(
    over_bytes: Axes,
    over_steps: Axes,
    name: str,
    records: Sequence[Record],
    measure: Measure | None,
) -> None:
    sent = 0
    bytes_: list[float] = []
    steps: list[int] = []
    scores: list[float] = []
    for record in records:
        # Rounds that were not evaluated have no point, but what they sent counts.
        sent += record.uplink_bytes + record.downlink_bytes
        score = record.score
        if measure is None:
            score = record.test_loss
        if score is None:
            continue
        bytes_.append(sent / MEBIBYTE)
        steps.append(record.step)
        scores.append(score)

    if not scores:
        raise InputError(f"{name} was never evaluated: there is nothing to draw")
    over_bytes.plot(bytes_, scores, marker=".", label=name)
    over_steps.plot(steps, scores, marker=".", label=name)
