"""Who of a cohort is there, and whose update is averaged.

A client that is left out stays in its place with weight zero, and its row is set back to the server's: zero times a
finite number adds nothing, so averages and distances need no second code path. (Zero times NaN would be NaN.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from fedlama.base import DivergenceError
from fedlama.training.faults import (
    FAILED_BEFORE,
    FAILED_DURING,
    NOT_FINITE,
    TOO_FEW_LEFT,
    TOO_LARGE,
    Faults,
    Stretch,
    excluded,
)
from fedlama.training.values import Cohort, Reports, Verdict


def begin_round(cohort: Cohort, faults: Faults, stretch: Stretch) -> dict[int, str]:
    """At a cycle's start everyone is back but those who fail before it: index → why it is left out."""
    if not stretch.begins_cycle:
        return {}
    failed = [index for index, client in enumerate(cohort.clients) if faults.fails_before(stretch, client)]
    cohort.gone.clear()
    cohort.gone.update(failed)
    return dict.fromkeys(failed, FAILED_BEFORE)


def break_updates(cohort: Cohort, faults: Faults, stretch: Stretch, row: Tensor, part: slice) -> None:
    """Let the clients whose turn it is return a broken update: one wrong number in a due slice is enough."""
    for place, index in enumerate(cohort.mine):
        number = faults.broken_number(stretch, cohort.clients[index])
        if number is not None:
            cohort.rows_CP[place, part.start] = row[part.start] + number


def judge(
    cohort: Cohort, reports: Reports, faults: Faults | None, stretch: Stretch, reasons: dict[int, str]
) -> Verdict:
    """Who is averaged; `reasons` are those of clients that the round began without."""
    reasons, uploads = dict(reasons), cohort.present
    finite = reports.largest_CS.isfinite().all(dim=1).tolist()
    for index, client in enumerate(cohort.clients):
        if index in cohort.gone:
            continue
        reason = faults.misses(stretch, client) if faults else None
        uploads -= reason == FAILED_DURING
        reason = reason or _refusal(client, index, reports, finite[index], faults, stretch)
        if reason:
            reasons[index] = reason
    cohort.gone.update(reasons)
    gone = sorted(cohort.gone)
    if gone:
        reports.largest_CS[gone] = 0
    return Verdict(
        weights=cohort.present_weights(),
        losses=[0.0 if index in cohort.gone else loss for index, loss in enumerate(reports.losses)],
        largest=reports.largest_CS.amax(dim=0).tolist(),
        excluded=[excluded(cohort.clients[i], reasons[i], stretch.attempt + 1) for i in sorted(reasons)],
        uploads=uploads,
    )


def _refusal(
    client: int, index: int, reports: Reports, finite: bool, faults: Faults | None, stretch: Stretch
) -> str | None:
    """Why the server refuses an update that arrived; one that is not finite ends the run unless that is tolerated."""
    loss_is_finite = math.isfinite(reports.losses[index])
    if not (loss_is_finite and finite):
        if faults and faults.exclude_nonfinite:
            return NOT_FINITE
        what = f"the weights of client {client} were" if loss_is_finite else f"the loss of client {client} was"
        raise diverged(what, stretch.round, stretch.steps.start)
    limit = faults.norm_limit if faults else None
    return TOO_LARGE if limit is not None and reports.norms[index] > limit else None


def given_up(cohort: Cohort, verdict: Verdict, attempt: int) -> list[dict[str, Any]]:
    """The entries of an attempt that does not count: with those who did nothing wrong, in the cohort's order."""
    blameless = [client for index, client in enumerate(cohort.clients) if index not in cohort.gone]
    entries = [*verdict.excluded, *(excluded(client, TOO_FEW_LEFT, attempt + 1) for client in blameless)]
    return sorted(entries, key=lambda entry: entry["client"])


def set_back(cohort: Cohort, row: Tensor, counters: Tensor) -> None:
    """The rows of those who are gone become the server's, and their momentum zero: they come back as if new."""
    for place, index in enumerate(cohort.mine):
        if index in cohort.gone:
            cohort.rows_CP[place] = row
            cohort.memory_CMP[place] = 0
            cohort.counters_CK[place] = counters


def present_runs(cohort: Cohort, at_once: int) -> Iterator[slice]:
    """Which of this process's rows to train: all in one go, or without those who are gone where they go one by one.

    Of a stack they are trained along: it is always as high, and a row does not feel its neighbours.
    """
    start = 0
    for place, index in enumerate(cohort.mine if at_once == 1 else ()):
        if index in cohort.gone:
            if start < place:
                yield slice(start, place)
            start = place + 1
    if start < len(cohort.mine):
        yield slice(start, len(cohort.mine))


def diverged(what: str, round_: int, step: int) -> DivergenceError:
    """What is said of a training that went wrong in the round that follows `step`."""
    return DivergenceError(
        f"{what} not finite in round {round_} (from step {step + 1}): "
        f"the training diverged, so lower local.learning_rate"
    )
