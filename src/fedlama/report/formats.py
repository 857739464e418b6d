"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.report.comparison import Comparison, Setting, Spread

UNKNOWN = "–"
UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def percent(share: float | None, digits: int = 2) -> str:
    """A share as a percentage, as the paper prints it."""
    return UNKNOWN if share is None else f"{100 * share:.{digits}f} %"


def human_bytes(count: float | None) -> str:
    """Bytes in decimal units, three digits."""
    if count is None:
        return UNKNOWN
    for unit, size in UNITS:
        if count >= 0.9995 * size:
            value = count / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{count:.0f} B"


def spread_text(spread: Spread | None, metric: str, digits: int = 2) -> str:
    """Mean ± sample standard deviation."""
    if spread is None:
        return UNKNOWN
    scale, unit, digits = (100, " %", digits) if metric == "accuracy" else (1, "", 3)
    deviation = "" if spread.deviation is None else f" ± {scale * spread.deviation:.{digits}f}"
    return f"{scale * spread.mean:.{digits}f}{deviation}{unit}"


def gap_text(gap: float, metric: str) -> tuple[str, str]:
    """The size of a difference between scores, empty where it rounds to nothing, and its direction."""
    if metric == "accuracy":
        size, direction = f"{abs(100 * gap):.1f}", "more" if gap > 0 else "less"
        return f"{size} points" if float(size) else "", direction
    size, direction = f"{abs(gap):.2f}", "higher" if gap > 0 else "lower"
    return size if float(size) else "", direction


def count_text(value: float) -> str:
    """A mean count: whole where it is whole."""
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def plural(count: int, word: str) -> str:
    """`1 seed`, `4 seeds`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def joined(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def seed_counts(settings: Sequence[Setting]) -> str:
    """`4 seeds`, or `3 to 4 seeds` where settings differ."""
    counts = sorted({len(setting.runs) for setting in settings})
    return plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def seeds_text(setting: Setting) -> str:
    """How many seeds the numbers are over, and of how many."""
    finished = len(setting.runs) if setting.finished else 0
    return f"{finished} of {finished + setting.unfinished}" if setting.unfinished else str(finished)


def notes(comparison: Comparison) -> list[str]:
    """What a reader of the table has to know to read it rightly."""
    found = [f"{_scores_note(comparison)} Bytes are summed over clients."]
    found.append(f"Cost is the number of parameters averaged over the run; 100 % is {_whole(comparison)}.")
    if comparison.differences:
        values = [f"{key} ({', '.join(shown)})" for key, shown in comparison.differences.items()]
        found.append(f"The settings differ in more than the policy: {joined(values)}.")
    for setting in comparison.settings:
        found += _setting_notes(setting)
    return found


def shown_cost(setting: Setting, comparison: Comparison) -> float | None:
    """Relative to the baseline setting; one setting alone is measured by its own base interval."""
    return setting.relative_cost if len(comparison.settings) > 1 else setting.cost


def _whole(comparison: Comparison) -> str:
    first, *others = comparison.settings
    if others and comparison.baseline is not None:
        return comparison.baseline.label
    return f"averaging every layer every {first.config['policy.base_interval']} steps"


def _scores_note(comparison: Comparison) -> str:
    seeds = [setting.seeds for setting in comparison.settings]
    counts = sorted({len(one) for one in seeds})
    if counts == [1]:
        return "One seed a setting, so no spread."
    named = f" ({', '.join(map(str, seeds[0]))})" if all(one == seeds[0] for one in seeds) else ""
    return f"Mean ± sample standard deviation over {seed_counts(comparison.settings)}{named}."


def _setting_notes(setting: Setting) -> list[str]:
    found: list[str] = []
    if not setting.finished:
        found.append(f"{setting.label} is unfinished, at {progress_text(setting)}: its numbers are those so far.")
    elif setting.unfinished:
        found.append(f"{setting.label}: {plural(setting.unfinished, 'unfinished run')} not counted.")
    if setting.repeated:
        found.append(f"{setting.label}: {plural(setting.repeated, 'run')} left out, as another has the same seed.")
    return found


def progress_text(setting: Setting) -> str:
    """How far an unfinished setting is."""
    return f"step {setting.step} of {setting.iterations}"
