"""The report: one HTML file that needs nothing else, and the picture by itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedlama.core import InputError
from fedlama.experiment.files import write_atomically
from fedlama.experiment.run_directory import Run, to_toml
from fedlama.report.comparison import Comparison, Setting, compare
from fedlama.report.conclusion import verdict
from fedlama.report.crossings import Crossing, crossing_figure, crossings
from fedlama.report.formats import UNKNOWN, count_text, human_bytes, notes, percent, plural, progress_text, shown_cost
from fedlama.report.layer_rows import LayerRow, layer_rows
from fedlama.report.plots import layers_figure, report_figure, score_figure
from fedlama.report.settings import shown_value
from fedlama.report.style import PALETTE, inline_svg, png
from fedlama.report.tables import cells, headings
from fedlama.version import __version__

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


def draw_report(runs: Sequence[Run], out: Path) -> Path:
    """Write `report.html` and `report.png` into a folder; the page's path."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; a report needs a folder: choose another --out")
    comparison = compare(runs)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be made a folder for the report ({error.strerror})") from None
    write_atomically(out / "report.png", png(report_figure(comparison)))
    write_atomically(out / "report.html", render_page(comparison, out))
    return out / "report.html"


def render_page(comparison: Comparison, out: Path) -> str:
    """The page as text; runs are named by their way from `out`."""
    environment = Environment(
        loader=PackageLoader("fedlama.report"),
        autoescape=True,  # names come from configurations and folders of others
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=", ".join(setting.label for setting in comparison.settings),
        facts=_facts(comparison),
        verdict=_unbroken(verdict(comparison)),
        headings=headings(comparison),
        rows=[_row(index, setting, comparison) for index, setting in enumerate(comparison.settings)],
        notes=notes(comparison),
        pictures=_pictures(comparison),
        layers=_layer_table(comparison),
        crossings=[_crossing(number, crossing) for number, crossing in enumerate(crossings(comparison))],
        configurations=[_configuration(setting, out) for setting in comparison.settings],
        metric=comparison.metric,
        version=__version__,
    )


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    configs = [setting.config for setting in comparison.settings]
    known = {name: configs[0].get(key) for key, name in FACTS.items() if key not in comparison.differences}
    agreed = {key for key, name in FACTS.items() if all(config.get(key) == known.get(name) for config in configs)}
    return [
        (name, shown_value(known[name])) for key, name in FACTS.items() if key in agreed and known.get(name) is not None
    ]


def _row(index: int, setting: Setting, comparison: Comparison) -> dict[str, Any]:
    label, *numbers = [_unbroken(cell) for cell in cells(setting, comparison)]
    return {
        "label": label,
        "numbers": numbers,
        "colour": index % len(PALETTE),
        "cost": min(100.0, round(100 * (shown_cost(setting, comparison) or 0.0), 2)),
        "progress": "" if setting.finished else f"unfinished, {progress_text(setting)}",
    }


def _pictures(comparison: Comparison) -> dict[str, Markup]:
    figures = {
        "steps": (score_figure(comparison, "steps"), f"{comparison.metric} over steps"),
        "bytes": (score_figure(comparison, "uplink_bytes"), f"{comparison.metric} over bytes sent"),
        "layers": (layers_figure(comparison), "aggregations of each layer"),
    }
    return {name: Markup(inline_svg(figure, name, said)) for name, (figure, said) in figures.items()}


def _layer_table(comparison: Comparison) -> dict[str, Any]:
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


def _crossing(number: int, crossing: Crossing) -> dict[str, Any]:
    lengthened = [name for name, long in zip(crossing.names, crossing.lengthened, strict=True) if long]
    figure = inline_svg(crossing_figure(crossing), f"crossing{number}", "δ and 1 − λ over the layers")
    return {
        "label": crossing.label,
        "seed": crossing.seed,
        "step": crossing.step,
        "base": crossing.base_interval,
        "long": crossing.long_interval,
        "count": f"{len(lengthened)} of {plural(len(crossing.names), 'layer')}",
        "share": _unbroken(percent(crossing.lengthened_share, 1)),
        "picture": Markup(figure),
    }


def _configuration(setting: Setting, out: Path) -> dict[str, Any]:
    shown = {name: value for name, value in setting.runs[0].config.items() if name not in ("seed", "versions")}
    versions = [run.config.get("versions", {}) for run in setting.runs]
    return {
        "label": setting.label,
        "toml": to_toml(shown).strip(),
        "seeds": ", ".join(map(str, setting.seeds)),
        "versions": list(dict.fromkeys(", ".join(f"{name} {v}" for name, v in one.items()) for one in versions if one)),
        "folders": [os.path.relpath(run.path, out) for run in setting.runs],
    }


def _unbroken(text: str) -> str:
    """A number stays on one line with its unit and its spread."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
