"""Paired differences of a study, finished or not: python results/paired.py STUDY.toml FOLDER

Prints the table of the runs that are finished, and draws FOLDER/paired.svg and paired.png.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedlama.report.numbers.comparison import RunComparison, compare
from fedlama.report.pictures.paired import draw_paired
from fedlama.report.tables.paired import paired_grid
from fedlama.study.runs import load_run
from fedlama.study.study_file import load_study


def comparison_of(file: Path, folder: Path) -> RunComparison:
    """The study's finished runs in a folder."""
    study = load_study(file)
    labels: dict[Path, str] = {}
    for cell in study.cells({}):
        path = folder / cell.path
        if (path / "summary.json").exists():
            labels[path] = cell.setting
    runs = [load_run(path) for path in labels]
    return compare(runs, labels=labels, baseline=study.options.baseline)


def main(file: Path, folder: Path) -> None:
    """The table and the pictures."""
    comparison = comparison_of(file, folder)
    print(paired_grid(comparison).markdown())
    draw_paired(comparison, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
