"""Moving averages beside the models of a study: python results/averages.py STUDY.toml FOLDER

For every setting whose runs evaluated one: accuracy of the model and of its moving average, and the paired difference
to the baseline's at the same seeds, each to its own kind: mean ± standard error over seeds. All numbers of a row are
over the seeds that the baseline has, too; without any they are over the setting's own, and there is no difference.
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
    """In points, over the seeds of `own`, all of which the baseline has."""
    differences = [own[seed][kind] - baseline[seed][kind] for seed in own]
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
    baseline = settings.get(name, {})
    for setting, own in settings.items():
        shared = {seed: own[seed] for seed in own if seed in baseline}
        shown = shared or own
        has_difference = shared and setting != name
        cells = [setting]
        for kind in (0, 1):
            mean = fmean(both[kind] for both in shown.values())
            cells.append(f"{100 * mean:.2f} %")
            cells.append(difference(shown, baseline, kind) if has_difference else "–")
        cells.append(", ".join(map(str, shown)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]), Path(sys.argv[2])))
