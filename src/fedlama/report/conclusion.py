"""One sentence on what a comparison showed, made from its numbers, whoever won."""

from __future__ import annotations

import math

from fedlama.report.comparison import Comparison, Setting, Spread
from fedlama.report.formats import human_bytes, joined, percent, plural, progress_text, seed_counts, spread_text

MOST_OTHERS = 2  # a sentence with more settings than this beside the two it compares would not be read
SEEDS_FOR_A_DIRECTION = 3  # two seeds agree by chance half of the time


def verdict(comparison: Comparison) -> str:
    """What the comparison showed, in one sentence."""
    finished = [setting for setting in comparison.settings if setting.finished]
    waiting = [setting for setting in comparison.settings if not setting.finished]
    if not finished:
        return f"Nothing is finished yet: {joined([_so_far(setting, comparison) for setting in waiting])}."
    clauses = _alone(finished[0], comparison) if len(finished) == 1 else _compared(finished, comparison)
    if waiting:
        clauses.append(f"{joined([f'{one.label} is unfinished ({progress_text(one)})' for one in waiting])}")
    if comparison.differences:
        clauses.append(f"the settings also differ in {joined(list(comparison.differences))}")
    return f"{'; '.join(clauses)} ({_seeds(finished)})."


def _so_far(setting: Setting, comparison: Comparison) -> str:
    score = comparison.score(setting)
    reached = "" if score is None else f" and has reached {_score(score, comparison)}"
    return f"{setting.label} is at {progress_text(setting)}{reached}"


def _alone(setting: Setting, comparison: Comparison) -> list[str]:
    score = comparison.score(setting)
    reached = "" if score is None else f"reached {_score(score, comparison)} and "
    up, down = human_bytes(setting.uplink_bytes), human_bytes(setting.downlink_bytes)
    every = setting.config["policy.base_interval"]
    share = f", {percent(setting.cost, 0)} of the cost of averaging every layer every {every} steps"
    return [f"{setting.label} {reached}sent {up} and received {down}{share if setting.adapts else ''}"]


def _compared(finished: list[Setting], comparison: Comparison) -> list[str]:
    """The leading setting against the most expensive one, then the others against the leading one."""
    base = max(finished, key=lambda setting: setting.communication_cost or 0.0)
    rest = [setting for setting in finished if setting is not base]
    lead = next((setting for setting in rest if setting.adapts), rest[0])
    others = [setting for setting in rest if setting is not lead]
    shown = others if len(others) <= MOST_OTHERS else [_best(others, comparison)]
    clauses = [_first(lead, base, comparison), *(_other(one, lead, base, comparison) for one in shown)]
    left = len(others) - len(shown)
    return [*clauses, f"the table has {plural(left, 'more setting')}"] if left else clauses


def _best(settings: list[Setting], comparison: Comparison) -> Setting:
    def goodness(setting: Setting) -> float:
        score = comparison.score(setting)
        return -math.inf if score is None else score.mean * _sign(comparison)

    return max(settings, key=goodness)


def _first(lead: Setting, base: Setting, comparison: Comparison) -> str:
    sent = f"{lead.label} sent {_share(lead, base)} of {base.label}'s bytes"
    ours, theirs = comparison.score(lead), comparison.score(base)
    if ours is None or theirs is None:
        return sent
    against = f"{_score(ours, comparison)} against {_score(theirs, comparison, named=False)}"
    return f"{sent} and reached {against}, {_difference(lead, base, comparison)}"


def _other(setting: Setting, lead: Setting, base: Setting, comparison: Comparison) -> str:
    sent = f"{setting.label}, at {_share(setting, base)} of the bytes,"
    score = comparison.score(setting)
    if score is None:
        return f"{sent} has no {comparison.metric}"
    difference = _difference(setting, lead, comparison, lead.label)
    return f"{sent} reached {_score(score, comparison)}{difference and ', '}{difference}"


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
    size, direction = _gap(gap, comparison)
    text = f"{size} {direction}{name and f' than {name}'}" if size else f"level{name and f' with {name}'}"
    if None in (ours.deviation, theirs.deviation) or abs(gap) > _spread_of_a_gap(ours, theirs):
        return text
    every = f" but {direction} with every one" if size and _every_seed(one, other, comparison) else ""
    return f"{text}, within the spread over seeds{every}"


def _spread_of_a_gap(ours: Spread, theirs: Spread) -> float:
    """The standard deviation of a difference between a run of the one and a run of the other."""
    return math.hypot(ours.deviation or 0.0, theirs.deviation or 0.0)


def _gap(gap: float, comparison: Comparison) -> tuple[str, str]:
    """The size of a gap, empty where it rounds to nothing, and its direction."""
    if comparison.metric == "accuracy":
        size, direction = f"{abs(100 * gap):.1f}", "more" if gap > 0 else "less"
        return f"{size} points" if float(size) else "", direction
    size, direction = f"{abs(gap):.2f}", "higher" if gap > 0 else "lower"
    return size if float(size) else "", direction


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
    alone = len(settings) > 1 and all(len(setting.runs) == 1 for setting in settings)
    return "1 seed each, so no spread to judge the differences by" if alone else seed_counts(settings)
