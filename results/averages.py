"""Moving averages beside the models of a study: python results/averages.py STUDY.toml FOLDER

For every setting whose runs evaluated one: accuracy of the model and of its moving average, and the paired difference
to the baseline's at the same seeds, each to its own kind: mean ± standard error over seeds.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev

from fedlama.report.tables.paired import points
from fedlama.study.study_file import load_study

Scores = Mapping[int, tuple[float, float]]  # by seed: of the model, of its average


def scores_of(file: Path, folder: Path) -> tuple[str, dict[str, Scores]]:
    """The baseline's name, and the scores of every setting that has both kinds."""
    study = load_study(file)
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for cell in study.cells({}):
        path = folder / cell.path / "summary.json"
        if not path.exists():
            continue
        summary = json.loads(path.read_text(encoding="utf-8"))
        average = summary.get("average_score")
        if average is not None:
            own = found.setdefault(cell.setting, {})
            own[cell.config.seed] = (summary["accuracy"], average)
    return study.options.baseline or next(iter(found)), dict(found)


def difference(own: Scores, baseline: Scores, kind: int) -> str:
    """In points, over the seeds that both have."""
    differences = [
        own[seed][kind] - baseline[seed][kind] for seed in own if seed in baseline
    ]
    if not differences:
        return "–"
    text = points(fmean(differences))
    if len(differences) > 1:
        error = stdev(differences) / math.sqrt(len(differences))
        text += f" ± {100 * error:.2f}"
    return text


def table(file: Path, folder: Path) -> str:
    """Markdown."""
    name, settings = scores_of(file, folder)
    lines = [
        "| setting | model | difference | moving average | difference | seeds |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for setting, own in settings.items():
        cells = [setting]
        for kind in (0, 1):
            cells.append(f"{100 * fmean(both[kind] for both in own.values()):.2f} %")
            is_baseline = setting == name
            baseline = settings.get(name, {})
            cells.append("–" if is_baseline else difference(own, baseline, kind))
        cells.append(", ".join(map(str, own)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]), Path(sys.argv[2])))
