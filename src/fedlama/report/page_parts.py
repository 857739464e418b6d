"""The parts of the page that are words and tables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedlama.report.comparison import Comparison, Setting
from fedlama.report.crossings import Crossing
from fedlama.report.formats import UNKNOWN, count_text, human_bytes, percent, plural, progress_text, shown_cost
from fedlama.report.layer_rows import LayerRow, layer_rows
from fedlama.report.settings import shown_value
from fedlama.report.style import PALETTE
from fedlama.report.tables import cells
from fedlama.run.directory import to_toml

# What a reader asks first about an experiment, where all settings agree on it.
FACTS = {
    "data.name": "data",
    "model.name": "model",
    "partition.kind": "partition",
    "partition.alpha": "α",
    "partition.clients": "clients",
    "participation.active": "active",
    "local.learning_rate": "learning rate",
    "local.batch_size": "batch size",
    "train.iterations": "steps",
}


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """What all settings share."""
    configs = [setting.config for setting in comparison.settings]
    known = {name: configs[0].get(key) for key, name in FACTS.items() if key not in comparison.differences}
    agreed = {key for key, name in FACTS.items() if all(config.get(key) == known.get(name) for config in configs)}
    return [
        (name, shown_value(known[name])) for key, name in FACTS.items() if key in agreed and known.get(name) is not None
    ]


def setting_row(index: int, setting: Setting, comparison: Comparison) -> dict[str, Any]:
    """One row of the main table."""
    label, *numbers = [unbroken(cell) for cell in cells(setting, comparison)]
    return {
        "label": label,
        "numbers": numbers,
        "colour": index % len(PALETTE),
        "cost": min(100.0, round(100 * (shown_cost(setting, comparison) or 0.0), 2)),
        "progress": "" if setting.finished else f"unfinished, {progress_text(setting)}",
    }


def layer_table(comparison: Comparison) -> dict[str, Any]:
    """The table of layers."""
    rows = layer_rows(comparison)
    return {
        "settings": [(setting.label, index % len(PALETTE)) for index, setting in enumerate(comparison.settings)],
        "rows": [_layer(row) for row in rows],
        "statistics": [human_bytes(setting.statistics_bytes) for setting in comparison.settings]
        if any(setting.statistics_bytes for setting in comparison.settings)
        else [],
        "size": _number(_total(row.size for row in rows)),
        "totals": [human_bytes(setting.uplink_bytes) for setting in comparison.settings],
    }


def _layer(row: LayerRow) -> dict[str, Any]:
    pairs = [
        (UNKNOWN, UNKNOWN) if count is None else (count_text(count.aggregations), human_bytes(count.uplink_bytes))
        for count in row.counts
    ]
    return {"name": row.name, "size": _number(row.size), "share": percent(row.share), "pairs": pairs}


def _total(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def crossing_words(crossing: Crossing) -> str:
    """What the latest decision was, in a sentence."""
    count = f"{sum(crossing.lengthened)} of {plural(len(crossing.names), 'layer')}"
    return (
        f"Seed {crossing.seed}, after step {crossing.step}: {count}, {unbroken(percent(crossing.lengthened_share, 1))} "
        f"of the parameters, to be averaged every {crossing.long_interval} steps, the others every "
        f"{crossing.base_interval}."
    )


def configuration(setting: Setting, out: Path) -> dict[str, Any]:
    """A setting's configuration, with the versions and folders of its runs."""
    shown = {name: value for name, value in setting.runs[0].config.items() if name not in ("seed", "versions")}
    versions = [run.config.get("versions", {}) for run in setting.runs]
    return {
        "label": setting.label,
        "toml": to_toml(shown).strip(),
        "seeds": ", ".join(map(str, setting.seeds)),
        "versions": list(dict.fromkeys(", ".join(f"{name} {v}" for name, v in one.items()) for one in versions if one)),
        "folders": [os.path.relpath(run.path, out) for run in setting.runs],
    }


def unbroken(text: str) -> str:
    """A number stays on one line with its unit and its spread."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
