"""A few sentences on what a comparison showed, made from its numbers, whoever won."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.seeds import Spread, mean_of
from fedlama.report.words.formats import (
    gap_text,
    human_bytes,
    joined,
    named_score,
    percent,
    plural,
    share_text,
    spread_text,
)
from fedlama.report.words.frontier import equal_bytes
from fedlama.report.words.notes import (
    CODES,
    progress_text,
    seed_counts,
    warnings_of,
)
from fedlama.run.codecs import NO_CODEC
from fedlama.run.labels import asked_share
from fedlama.run.texts import SMALL_SHARE
from fedlama.training.records import fedavg_at

# An answer with more settings than this beside the two it compares would not be read
MAX_OTHERS = 2
SEEDS_FOR_A_DIRECTION = 3  # two seeds agree by chance half of the time


def verdict(comparison: RunComparison) -> str:
    """What the comparison showed, in a few short sentences; what makes it no result comes first."""
    sentences = [*warnings_of(comparison), *verdict_sentences(comparison)]
    return " ".join(sentences)


def verdict_sentences(comparison: RunComparison) -> list[str]:
    """The answer first, then what it rests on."""
    finished = [setting for setting in comparison.settings if setting.finished]
    waiting = [setting for setting in comparison.settings if not setting.finished]
    if not finished:
        return [
            "Nothing is finished yet.",
            *(_so_far(setting, comparison) for setting in waiting),
        ]

    if len(finished) == 1:
        sentences = _alone(finished[0], comparison)
    else:
        sentences = _compared(finished, comparison)

    for setting in finished:
        sentences += _excess(setting)
    for setting in waiting:
        sentences.append(f"{setting.label} is unfinished ({progress_text(setting)}).")
    # What codes its messages is named after that; the table's notes have the rest.
    keys = [key for key in comparison.differences if not key.startswith(CODES)]
    if keys:
        sentences.append(f"The settings also differ in {joined(keys)}.")
    sentences.append(_seeds(finished))
    return sentences


def _so_far(setting: ComparedSetting, comparison: RunComparison) -> str:
    sentence = f"{setting.label} is at {progress_text(setting)}"
    score = comparison.score(setting)
    if score is not None:
        sentence += f" and has reached {_score(score, comparison)}"
    return f"{sentence}."


def _alone(setting: ComparedSetting, comparison: RunComparison) -> list[str]:
    sentences: list[str] = []

    whose = f"{setting.label}: its"
    score = comparison.score(setting)
    if score is not None:
        sentences.append(f"{setting.label} reached {_score(score, comparison)}.")
        whose = "Its"

    sent = human_bytes(setting.uplink_bytes)
    received = human_bytes(setting.downlink_bytes)
    sentences.append(f"{whose} clients sent {sent} and received {received}.")

    # For FedAvg the sentence would say 100 %.
    if setting.adapts:
        sentences.append(f"That is {_shares(setting)}.")
    return sentences


def _shares(setting: ComparedSetting) -> str:
    """What a setting cost, and where its messages are coded what they were: the cost does not say it."""
    interval = setting.base_interval
    cost = percent(setting.cost, 0)
    of_cost = f"{cost} of the cost of averaging every layer every {interval} steps"
    is_coded = setting.config.uplink.codec != NO_CODEC
    uplink = _recorded_uplink_share(setting)
    if not is_coded or uplink is None:
        return of_cost
    share = share_text(uplink)
    fedavg = fedavg_at(interval)
    return f"{share} of {fedavg}'s uplink and {of_cost}"


def _excess(setting: ComparedSetting) -> list[str]:
    """What a preset was to send at most, where it sent more in the digits that are shown."""
    asked = asked_share(setting.config)
    sent = _recorded_uplink_share(setting)
    if asked is None or sent is None or sent <= asked:
        return []
    if share_text(sent) == share_text(asked):
        return []
    fedavg = fedavg_at(setting.base_interval)
    return [
        f"{setting.label} was to send {100 * asked:g} % of {fedavg}'s uplink at most, and sent {share_text(sent)}."
    ]


def _recorded_uplink_share(setting: ComparedSetting) -> float | None:
    """Of uncompressed FedAvg's at the base interval; None where a run does not tell."""
    shares: list[float | None] = []
    for run in setting.runs:
        if run.summary is None:
            return None
        shares.append(run.summary.uplink_share)
    return mean_of(shares)


def _compared(
    finished: Sequence[ComparedSetting], comparison: RunComparison
) -> list[str]:
    """The leading setting against the baseline, then the others against the leading one."""
    base = _base(finished, comparison)
    rest = [setting for setting in finished if setting is not base]
    lead = _lead(rest)
    others = [setting for setting in rest if setting is not lead]

    shown = others
    if len(others) > MAX_OTHERS:
        shown = [_best(others, comparison)]

    sentences = _first(lead, base, comparison)
    for setting in shown:
        sentences.append(_other(setting, lead, base, comparison))

    left = len(others) - len(shown)
    if left:
        sentences.append(f"The table has {plural(left, 'more setting')}.")
    return sentences + equal_bytes(comparison, only=lead.label)


def _base(
    finished: Sequence[ComparedSetting], comparison: RunComparison
) -> ComparedSetting:
    baseline = comparison.baseline
    if baseline is not None and baseline.finished:
        return baseline
    return max(finished, key=lambda setting: setting.communication_cost or 0.0)


def _lead(settings: Sequence[ComparedSetting]) -> ComparedSetting:
    """The setting that the answer is about: the first that codes its messages, or else the first that adapts.

    Codes change the bytes most, so whoever compares one with the rest asks about it.
    """
    adapting = [setting for setting in settings if setting.adapts]
    for setting in adapting:
        if setting.config.uplink.codec != NO_CODEC:
            return setting
    if adapting:
        return adapting[0]
    return settings[0]


def _best(
    settings: Sequence[ComparedSetting], comparison: RunComparison
) -> ComparedSetting:
    def goodness(setting: ComparedSetting) -> float:
        score = comparison.score(setting)
        if score is None:
            return -math.inf
        return score.mean * comparison.sign

    return max(settings, key=goodness)


def _first(
    lead: ComparedSetting, base: ComparedSetting, comparison: RunComparison
) -> list[str]:
    sent = f"{lead.label} sent {_share(lead, base)} of {base.label}'s uplink"
    ours = comparison.score(lead)
    theirs = comparison.score(base)
    if ours is None or theirs is None:
        return [f"{sent}."]

    reached = _score(ours, comparison)
    against = spread_text(theirs, comparison.metric, 1)
    difference = _difference(lead, base, comparison)
    subject = "That is"
    if difference.startswith("level"):
        subject = "The two are"
    return [
        f"{sent} and reached {reached} against {against}.",
        f"{subject} {difference}.",
    ]


def _other(
    setting: ComparedSetting,
    lead: ComparedSetting,
    base: ComparedSetting,
    comparison: RunComparison,
) -> str:
    sent = f"{setting.label} sent {_share(setting, base)}"
    score = comparison.score(setting)
    if score is None:
        return f"{sent} and has no {comparison.metric}."

    sentence = f"{sent} and reached {_score(score, comparison)}"
    difference = _difference(setting, lead, comparison, lead.label)
    if difference:
        sentence += f", {difference}"
    return f"{sentence}."


def _share(setting: ComparedSetting, base: ComparedSetting) -> str:
    if not base.uplink_bytes:
        return "none"
    share = setting.uplink_bytes / base.uplink_bytes
    if share < SMALL_SHARE:
        return share_text(share)
    return percent(share, 0)


def _score(spread: Spread, comparison: RunComparison) -> str:
    text = spread_text(spread, comparison.metric, 1)
    return named_score(text, comparison.metric)


def _difference(
    one: ComparedSetting,
    other: ComparedSetting,
    comparison: RunComparison,
    name: str = "",
) -> str:
    """How `one` did against `other`, and whether seeds differ as much among themselves.

    Arguments:
        one: the setting that is spoken of.
        other: the setting it is compared with.
        comparison: says which score counts.
        name: what the other is called, where the sentence has not named it.
    """
    ours = comparison.score(one)
    theirs = comparison.score(other)
    if ours is None or theirs is None:
        return ""

    gap = ours.mean - theirs.mean
    size, direction = gap_text(gap, comparison.metric, comparison.sign)
    if size:
        text = f"{size} {direction}"
        link = "than"
    else:
        text = "level"
        link = "with"
    if name:
        text += f" {link} {name}"

    if ours.deviation is None or theirs.deviation is None:
        return text
    # The standard deviation of a difference between a run of the one and a run of the other.
    if abs(gap) > math.hypot(ours.deviation, theirs.deviation):
        return text

    text += ", within the spread over seeds"
    if size and _every_seed_agrees(one, other, comparison):
        text += f" but {direction} with every one"
    return text


def _every_seed_agrees(
    one: ComparedSetting, other: ComparedSetting, comparison: RunComparison
) -> bool:
    """Equal seeds share clients and batches, so a small difference that every one of them shows is worth a word."""
    ours = comparison.score(one)
    theirs = comparison.score(other)
    if ours is None or theirs is None:
        return False
    are_few = len(one.seeds) < SEEDS_FOR_A_DIRECTION
    if are_few or one.seeds != other.seeds:
        return False

    gaps: list[float] = []
    for our_value, their_value in zip(ours.values, theirs.values, strict=True):
        gap = our_value - their_value
        gaps.append(gap)
    all_above = min(gaps) > 0
    all_below = max(gaps) < 0
    return all_above or all_below


def _seeds(settings: Sequence[ComparedSetting]) -> str:
    counts = seed_counts(settings)
    if counts != "1 seed":
        return f"These are means over {counts}."
    if len(settings) > 1:
        return "This is one seed each; without more there is no spread to judge the differences by."
    return "This is one seed."
