"""The table of a study: what each setting reached and cost, and the learning rate that was chosen for it."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.pairs import paired_difference
from fedlama.report.tables.grids import Grid
from fedlama.report.words.formats import (
    UNKNOWN,
    human_bytes,
    percent,
    share_text,
    spread_text,
)
from fedlama.report.words.notes import (
    cost_heading,
    metric_heading,
    notes,
    rate_text,
    seeds_text,
    shows_uplink_share,
    uplink_heading,
    uplink_share,
    warning_fields,
)
from fedlama.report.words.pairs import (
    AVERAGE_HEADINGS,
    average_cells,
    average_fields,
    average_notes,
    difference_heading,
    difference_text,
    shows_averages,
)
from fedlama.report.words.study import choice_notes, divergence_notes
from fedlama.study.index import StudyIndex

WIDTH = 8  # columns that fit a terminal


def study_grid(comparison: RunComparison, index: StudyIndex) -> Grid:
    """One row per setting.

    Arguments:
        comparison: the study's runs.
        index: how learning rates were chosen, and what diverged.
    """
    headings = _headings(comparison)
    rows = [_cells(setting, comparison) for setting in comparison.settings]
    for label in _absent(comparison, index):
        what = "not finished"
        if _has_diverged(label, index):
            what = "diverged"
        empty = [UNKNOWN] * (len(headings) - 2)
        rows.append([label, what, *empty])

    return Grid(
        headings=headings,
        rows=rows,
        notes=[
            *notes(comparison),
            *average_notes(comparison),
            *divergence_notes(index, comparison),
            *choice_notes(index),
        ],
        records=[_record(setting, comparison) for setting in comparison.settings],
        parts={},
        narrow=_narrow(headings),
    )


def _narrow(headings: Sequence[str]) -> list[int]:
    """The columns that fit eighty characters: not the downlink, the rate and moving averages."""
    left_out = ("downlink", "rate", *AVERAGE_HEADINGS)
    if len(headings) <= WIDTH:
        left_out = ()
    return [
        number for number, heading in enumerate(headings) if heading not in left_out
    ]


def _headings(comparison: RunComparison) -> list[str]:
    names = [
        "setting",
        metric_heading(comparison),
        difference_heading(comparison),
    ]
    if shows_averages(comparison):
        names += AVERAGE_HEADINGS
    names += [cost_heading(comparison), "uplink"]
    if shows_uplink_share(comparison):
        names.append(uplink_heading(comparison))
    return [*names, "downlink", "rate", "seeds"]


def _absent(comparison: RunComparison, index: StudyIndex) -> list[str]:
    """The settings of which no run came to anything."""
    present = {setting.label for setting in comparison.settings}
    every = [*index.labels.values(), *index.choices]
    absent: list[str] = []
    for label in dict.fromkeys(every):
        if label not in present:
            absent.append(label)
    return absent


def _has_diverged(label: str, index: StudyIndex) -> bool:
    """Whether a setting has no run because its training, or all of its pilots, diverged."""
    choice = index.choices.get(label)
    if choice is not None and choice.rate is None:
        return True
    diverged: list[str | None] = []
    for path in index.diverged:
        owner = index.labels.get(path)
        diverged.append(owner)
    return label in diverged


def _cells(setting: ComparedSetting, comparison: RunComparison) -> list[str]:
    cells = [
        setting.label,
        spread_text(comparison.score(setting), comparison.metric),
        difference_text(paired_difference(setting, comparison), comparison.metric),
    ]
    if shows_averages(comparison):
        cells += average_cells(setting, comparison)
    cells += [
        percent(setting.relative_cost),
        human_bytes(setting.uplink_bytes),
    ]
    if shows_uplink_share(comparison):
        cells.append(share_text(uplink_share(setting, comparison)))
    return [
        *cells,
        human_bytes(setting.downlink_bytes),
        rate_text(setting),
        seeds_text(setting),
    ]


def _record(setting: ComparedSetting, comparison: RunComparison) -> dict[str, object]:
    mean = None
    deviation = None
    score = comparison.score(setting)
    if score is not None:
        mean = score.mean
        deviation = score.deviation

    gap = None
    error = None
    difference = paired_difference(setting, comparison)
    if difference is not None:
        gap = difference.mean
        error = difference.error

    return {
        "setting": setting.label,
        comparison.metric: mean,
        f"{comparison.metric}_deviation": deviation,
        "difference": gap,
        "difference_error": error,
        **average_fields(setting, comparison),
        "relative_cost": setting.relative_cost,
        "uplink_bytes": setting.uplink_bytes,
        "uplink_share": uplink_share(setting, comparison),
        "downlink_bytes": setting.downlink_bytes,
        "statistics_bytes": setting.statistics_bytes,
        "learning_rate": setting.config.local.rate_if_known,
        "seeds": " ".join(map(str, setting.seeds)),
        **warning_fields(comparison),
    }
