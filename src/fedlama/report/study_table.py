"""The table of a study: what each setting reached and cost, and the learning rate that was chosen for it."""

from __future__ import annotations

from fedlama.report.comparison import Comparison, Setting
from fedlama.report.formats import UNKNOWN, human_bytes, notes, percent, seeds_text, spread_text
from fedlama.report.grids import Grid
from fedlama.report.pairs import difference_heading, difference_note, difference_text, paired_difference
from fedlama.study.index import StudyIndex


def study_grid(comparison: Comparison, index: StudyIndex) -> Grid:
    """One row a setting."""
    diverged = [label for label in dict.fromkeys(index.labels.values()) if _diverged_count(index, label)]
    rows = [_cells(setting, comparison) for setting in comparison.settings]
    absent = [label for label in _settings(index) if label not in {setting.label for setting in comparison.settings}]
    rows += [[label, "diverged", *[UNKNOWN] * 6] for label in absent]
    told = notes(comparison)
    differences = difference_note(comparison)
    if differences is not None:
        told.append(differences)
    told += [_divergence(label, index) for label in diverged]
    told += choice_notes(index)
    return Grid(
        headings=[
            "setting",
            comparison.metric,
            difference_heading(comparison),
            "cost",
            "uplink",
            "downlink",
            "rate",
            "seeds",
        ],
        rows=rows,
        notes=told,
        records=[_record(setting, comparison) for setting in comparison.settings],
        parts={},
    )


def _settings(index: StudyIndex) -> list[str]:
    return list(dict.fromkeys((*index.labels.values(), *index.choices)))


def learning_rate(setting: Setting) -> str:
    """As the configuration has it."""
    return f"{setting.config['local.learning_rate']:g}"


def choice_notes(index: StudyIndex) -> list[str]:
    """How learning rates were chosen, and where the grid was too narrow."""
    if not index.choices:
        return []
    tried = {rate for choice in index.choices.values() for rate in choice.scores}
    rates = ", ".join(sorted(tried, key=float))
    found = [f"Learning rates were chosen by pilots on a validation split, out of {rates}."]
    edges = [label for label, choice in index.choices.items() if choice.at_edge]
    for label, choice in index.choices.items():
        if choice.rate is None:
            found.append(f"{label} diverged at every learning rate that was tried ({', '.join(choice.scores)}).")
    if edges:
        found.append(f"At the edge of the rates tried, so that another may be better: {', '.join(edges)}.")
    return found


def _cells(setting: Setting, comparison: Comparison) -> list[str]:
    return [
        setting.label,
        spread_text(comparison.score(setting), comparison.metric),
        difference_text(paired_difference(setting, comparison), comparison.metric),
        percent(setting.relative_cost),
        human_bytes(setting.uplink_bytes),
        human_bytes(setting.downlink_bytes),
        learning_rate(setting),
        seeds_text(setting),
    ]


def _record(setting: Setting, comparison: Comparison) -> dict[str, object]:
    score = comparison.score(setting)
    difference = paired_difference(setting, comparison)
    return {
        "setting": setting.label,
        comparison.metric: None if score is None else score.mean,
        f"{comparison.metric}_deviation": None if score is None else score.deviation,
        "difference": None if difference is None else difference.mean,
        "difference_error": None if difference is None else difference.error,
        "relative_cost": setting.relative_cost,
        "uplink_bytes": setting.uplink_bytes,
        "downlink_bytes": setting.downlink_bytes,
        "statistics_bytes": setting.statistics_bytes,
        "learning_rate": setting.config["local.learning_rate"],
        "seeds": " ".join(map(str, setting.seeds)),
    }


def _diverged_count(index: StudyIndex, label: str) -> int:
    return sum(index.labels.get(run) == label for run in index.diverged)


def _divergence(label: str, index: StudyIndex) -> str:
    told = next(text for run, text in index.diverged.items() if index.labels.get(run) == label)
    return f"{label}: {_diverged_count(index, label)} of its runs diverged ({told})."
