"""A few sentences on what a comparison showed, made from its numbers, whoever won."""

from __future__ import annotations

import math

from fedlama.report.comparison import Comparison, Setting, Spread
from fedlama.report.formats import (
    gap_text,
    human_bytes,
    joined,
    percent,
    plural,
    progress_text,
    seed_counts,
    spread_text,
)
from fedlama.report.frontier import equal_bytes

MOST_OTHERS = 2  # an answer with more settings than this beside the two it compares would not be read
SEEDS_FOR_A_DIRECTION = 3  # two seeds agree by chance half of the time


def verdict(comparison: Comparison) -> str:
    """What the comparison showed, in a few short sentences."""
    return " ".join(verdict_sentences(comparison))


def verdict_sentences(comparison: Comparison) -> list[str]:
    """The answer first, then what it rests on."""
    finished = [setting for setting in comparison.settings if setting.finished]
    waiting = [setting for setting in comparison.settings if not setting.finished]
    if not finished:
        return ["Nothing is finished yet.", *(_so_far(setting, comparison) for setting in waiting)]
    sentences = _alone(finished[0], comparison) if len(finished) == 1 else _compared(finished, comparison)
    sentences += [f"{one.label} is unfinished ({progress_text(one)})." for one in waiting]
    if comparison.differences:
        sentences.append(f"The settings also differ in {joined(list(comparison.differences))}.")
    return [*sentences, _seeds(finished)]


def _so_far(setting: Setting, comparison: Comparison) -> str:
    score = comparison.score(setting)
    reached = "" if score is None else f" and has reached {_score(score, comparison)}"
    return f"{setting.label} is at {progress_text(setting)}{reached}."


def _alone(setting: Setting, comparison: Comparison) -> list[str]:
    score = comparison.score(setting)
    reached = [] if score is None else [f"{setting.label} reached {_score(score, comparison)}."]
    up, down = human_bytes(setting.uplink_bytes), human_bytes(setting.downlink_bytes)
    sent = f"{'Its' if reached else f'{setting.label}: its'} clients sent {up} and received {down}."
    every = setting.config["policy.base_interval"]
    share = f"That is {percent(setting.cost, 0)} of the cost of averaging every layer every {every} steps."
    return [*reached, sent, *([share] if setting.adapts else [])]


def _compared(finished: list[Setting], comparison: Comparison) -> list[str]:
    """The leading setting against the baseline, then the others against the leading one."""
    base = _base(finished, comparison)
    rest = [setting for setting in finished if setting is not base]
    lead = next((setting for setting in rest if setting.adapts), rest[0])
    others = [setting for setting in rest if setting is not lead]
    shown = others if len(others) <= MOST_OTHERS else [_best(others, comparison)]
    sentences = [*_first(lead, base, comparison), *(_other(one, lead, base, comparison) for one in shown)]
    left = len(others) - len(shown)
    sentences += [f"The table has {plural(left, 'more setting')}."] if left else []
    return sentences + equal_bytes(comparison, only=lead.label)


def _base(finished: list[Setting], comparison: Comparison) -> Setting:
    if comparison.baseline is not None and comparison.baseline.finished:
        return comparison.baseline
    return max(finished, key=lambda setting: setting.communication_cost or 0.0)


def _best(settings: list[Setting], comparison: Comparison) -> Setting:
    def goodness(setting: Setting) -> float:
        score = comparison.score(setting)
        return -math.inf if score is None else score.mean * _sign(comparison)

    return max(settings, key=goodness)


def _first(lead: Setting, base: Setting, comparison: Comparison) -> list[str]:
    sent = f"{lead.label} sent {_share(lead, base)} of {base.label}'s bytes"
    ours, theirs = comparison.score(lead), comparison.score(base)
    if ours is None or theirs is None:
        return [f"{sent}."]
    against = f"{_score(ours, comparison)} against {_score(theirs, comparison, named=False)}"
    difference = _difference(lead, base, comparison)
    said = "The two are" if difference.startswith("level") else "That is"
    return [f"{sent} and reached {against}.", f"{said} {difference}."]


def _other(setting: Setting, lead: Setting, base: Setting, comparison: Comparison) -> str:
    sent = f"{setting.label} sent {_share(setting, base)}"
    score = comparison.score(setting)
    if score is None:
        return f"{sent} and has no {comparison.metric}."
    difference = _difference(setting, lead, comparison, lead.label)
    return f"{sent} and reached {_score(score, comparison)}{difference and ', '}{difference}."


def _share(setting: Setting, base: Setting) -> str:
    return percent(setting.uplink_bytes / base.uplink_bytes, 0) if base.uplink_bytes else "none"


def _score(spread: Spread, comparison: Comparison, *, named: bool = True) -> str:
    text = spread_text(spread, comparison.metric, 1)
    return text if comparison.metric == "accuracy" or not named else f"a loss of {text}"


def _difference(one: Setting, other: Setting, comparison: Comparison, name: str = "") -> str:
    """How `one` did against `other`, and whether seeds differ as much among themselves."""
    ours, theirs = comparison.score(one), comparison.score(other)
    if ours is None or theirs is None:
        return ""
    gap = ours.mean - theirs.mean
    size, direction = gap_text(gap, comparison.metric)
    text = f"{size} {direction}{name and f' than {name}'}" if size else f"level{name and f' with {name}'}"
    if None in (ours.deviation, theirs.deviation) or abs(gap) > _spread_of_a_gap(ours, theirs):
        return text
    every = f" but {direction} with every one" if size and _every_seed(one, other, comparison) else ""
    return f"{text}, within the spread over seeds{every}"


def _spread_of_a_gap(ours: Spread, theirs: Spread) -> float:
    """The standard deviation of a difference between a run of the one and a run of the other."""
    return math.hypot(ours.deviation or 0.0, theirs.deviation or 0.0)


def _every_seed(one: Setting, other: Setting, comparison: Comparison) -> bool:
    """Equal seeds share clients and batches, so a small difference that every one of them shows is worth a word."""
    ours, theirs = comparison.score(one), comparison.score(other)
    if ours is None or theirs is None or one.seeds != other.seeds or len(one.seeds) < SEEDS_FOR_A_DIRECTION:
        return False
    signs = {math.copysign(1, a - b) if a != b else 0 for a, b in zip(ours.values, theirs.values, strict=True)}
    return len(signs) == 1 and 0 not in signs


def _sign(comparison: Comparison) -> int:
    return 1 if comparison.metric == "accuracy" else -1


def _seeds(settings: list[Setting]) -> str:
    counts = seed_counts(settings)
    if counts != "1 seed":
        return f"These are means over {counts}."
    several = "; without more there is no spread to judge the differences by" if len(settings) > 1 else ""
    return f"This is one seed{' each' if several else ''}{several}."
