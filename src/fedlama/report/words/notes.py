"""What a reader of a table has to know to read it rightly."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.layers import is_coded
from fedlama.report.numbers.outcomes import LOSS
from fedlama.report.words.formats import UNKNOWN, joined, plural
from fedlama.report.words.pairs import difference_notes, unequal_seeds_notes

# A setting that codes its messages is named after that: it is what is compared, and nothing to warn of.
CODES = ("uplink.", "downlink.")


def notes(comparison: RunComparison) -> list[str]:
    """How many seeds, what costs are shares of and differences are to, what else differs, what is unfinished."""
    found = [
        *warnings_of(comparison),
        f"{_seeds_note(comparison)} Bytes are summed over clients.",
        f"Cost is the number of parameters averaged over the run; 100 % is {_whole(comparison)}.",
        *difference_notes(comparison),
        *unequal_seeds_notes(comparison),
    ]

    codes: list[str] = []
    others: list[str] = []
    for key, shown in comparison.differences.items():
        said = f"{key} ({', '.join(shown)})"
        if key.startswith(CODES):
            codes.append(said)
        else:
            others.append(said)
    if codes:
        found.append(f"Messages are coded differently: {joined(codes)}.")
    if others:
        found.append(f"The settings differ in more than the policy: {joined(others)}.")

    if comparison.changed_code:
        found.append(
            f"The code of {joined(comparison.changed_code)} differs between these runs."
        )

    for setting in comparison.settings:
        found += _setting_notes(setting)
    return found


def warnings_of(comparison: RunComparison) -> list[str]:
    """What the studies of these runs have to say of every number in them, such as that it is no result."""
    found: dict[str, None] = {}  # each once
    for setting in comparison.settings:
        for run in setting.runs:
            if run.note:
                found[run.note] = None
    return list(found)


def warning_fields(comparison: RunComparison) -> dict[str, object]:
    """The same for files of numbers, which have no notes."""
    warnings = warnings_of(comparison)
    if not warnings:
        return {}
    return {"note": " ".join(warnings)}


def shown_cost(setting: ComparedSetting, comparison: RunComparison) -> float | None:
    """Relative to the baseline setting; one setting alone is measured by its own base interval."""
    if len(comparison.settings) > 1:
        return setting.relative_cost
    return setting.cost


def _whole(comparison: RunComparison) -> str:
    """What a cost of 100 % is."""
    first, *others = comparison.settings
    if others and comparison.baseline is not None:
        return comparison.baseline.label
    return f"averaging every layer every {first.base_interval} steps"


def metric_heading(comparison: RunComparison) -> str:
    """The heading of a column of scores: a loss is that on the test data."""
    if comparison.metric == LOSS:
        return f"test {LOSS}"
    return comparison.metric


def cost_heading(comparison: RunComparison) -> str:
    """The heading of a column of costs says what they are a share of."""
    first, *others = comparison.settings
    if others and comparison.baseline is not None:
        return f"cost, of {comparison.baseline.label}"
    return f"cost, of FedAvg({first.base_interval})"


def shows_uplink_share(comparison: RunComparison) -> bool:
    """Whether a table has a column of them: where messages are coded, the cost says little of the bytes."""
    if (
        len(comparison.settings) == 1
        or comparison.baseline is None
        or not comparison.baseline.uplink_bytes
    ):
        return False
    return any(is_coded(setting) for setting in comparison.settings)


def uplink_share(setting: ComparedSetting, comparison: RunComparison) -> float | None:
    """A setting's uplink bytes as a share of the baseline's."""
    baseline = comparison.baseline
    if baseline is None or not baseline.uplink_bytes:
        return None
    return setting.uplink_bytes / baseline.uplink_bytes


def uplink_heading(comparison: RunComparison) -> str:
    """The heading of a column of such shares."""
    baseline = comparison.baseline
    assert baseline is not None
    return f"uplink, of {baseline.label}"


def _seeds_note(comparison: RunComparison) -> str:
    seeds = [setting.seeds for setting in comparison.settings]
    if all(len(own) == 1 for own in seeds):
        return "One seed per setting, so no spread."

    counts = seed_counts(comparison.settings)
    note = f"Mean ± sample standard deviation over {counts}"
    first = seeds[0]
    if all(own == first for own in seeds):
        numbers = ", ".join(map(str, first))
        note += f" ({numbers})"
    return f"{note}."


def _setting_notes(setting: ComparedSetting) -> list[str]:
    found: list[str] = []
    if not setting.finished:
        found.append(
            f"{setting.label} is unfinished, at {progress_text(setting)}: its numbers are those so far."
        )
    elif setting.unfinished:
        uncounted = plural(setting.unfinished, "unfinished run")
        found.append(f"{setting.label}: {uncounted} not counted.")

    if setting.repeated:
        left_out = plural(setting.repeated, "run")
        found.append(
            f"{setting.label}: {left_out} left out, as another has the same seed."
        )
    return found


def seed_counts(settings: Sequence[ComparedSetting]) -> str:
    """`4 seeds`, or `3 to 4 seeds` where settings differ."""
    counts = [len(setting.runs) for setting in settings]
    fewest = min(counts)
    most = max(counts)

    if fewest == most:
        return plural(fewest, "seed")
    return f"{fewest} to {most} seeds"


def seeds_text(setting: ComparedSetting) -> str:
    """How many seeds the numbers are over, and of how many."""
    finished = 0
    if setting.finished:
        finished = len(setting.runs)
    if setting.unfinished:
        return f"{finished} of {finished + setting.unfinished}"
    return str(finished)


def progress_text(setting: ComparedSetting) -> str:
    """How far an unfinished setting is."""
    return f"step {setting.step} of {setting.iterations}"


def rate_text(setting: ComparedSetting) -> str:
    """The learning rate, as the configuration has it."""
    rate = setting.config.local.rate_if_known
    if rate is None:
        return UNKNOWN
    return f"{rate:g}"
