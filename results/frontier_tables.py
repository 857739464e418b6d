"""Fill the tables of results/frontier.md from the summaries below results/frontier: python results/frontier_tables.py

A table stands between `<!-- table NAME -->` and `<!-- end -->`, where NAME is a key of TABLES. A study without a
finished baseline leaves its table as it is. The README's first table, `headline`, has some settings of three studies.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, stdev

from averages import table as averages
from paired import comparison_of

from fedlama.report.numbers.pairs import Pair, paired
from fedlama.report.tables.paired import paired_grid, points
from fedlama.report.words.formats import UNKNOWN, share_text
from fedlama.study.study_file import load_study

HERE = Path(__file__).parent
PAGE = HERE / "frontier.md"
AVERAGES = "averages"  # the table of moving averages beside the models of CIFAR-10
README = HERE.parent / "README.md"
STUDIES = HERE / "frontier"
RECIPE = HERE.parent / "src/fedlama/paper/recipes/frontier.toml"
TABLES: Mapping[str, tuple[Path, Path]] = {
    "choose-digits": (STUDIES / "choose-digits.toml", STUDIES / "choose-digits"),
    "choose-unipen62": (STUDIES / "choose-unipen62.toml", STUDIES / "choose-unipen62"),
    "choose-unipen62-rates": (
        STUDIES / "choose-unipen62-rates.toml",
        STUDIES / "choose-unipen62-rates",
    ),
    "digits": (RECIPE, STUDIES / "digits"),
    "unipen62": (STUDIES / "unipen62.toml", STUDIES / "unipen62"),
    "cifar10": (STUDIES / "cifar10.toml", STUDIES / "cifar10"),
    "screening-digits": (
        STUDIES / "screening/digits.toml",
        STUDIES / "screening/digits",
    ),
    "screening-unipen62": (
        STUDIES / "screening/unipen62.toml",
        STUDIES / "screening/unipen62",
    ),
    "unipen62-window24": (
        STUDIES / "unipen62-window24.toml",
        STUDIES / "unipen62-window24",
    ),
}
# The README's first table: what its columns are called, and which study they show
COLUMNS: Mapping[str, str] = {
    "digits": "digits, small CNN",
    "unipen62": "UNIPEN-62 by writer, MLP",
    "cifar10": "CIFAR-10, ResNet20",
}
# Its rows: what a setting is called there, and what the studies call it, which have other rates
ROWS: Mapping[str, tuple[str, ...]] = {
    "FedAvg(6)": ("FedAvg(6)",),
    "FedLUAR(6, 1)": ("FedLUAR(6, 1)",),
    "FedPart(6)": ("FedPart(6)",),
    "FedAvg(12)": ("FedAvg(12)",),
    "FedLAMA(6, 4)": ("FedLAMA(6, 4)",),
    "FedAvg(24)": ("FedAvg(24)",),
    "4 bits per number": ("4 bits",),
    "1 bit, EDEN": ("Rotate(1)",),
    "the largest 1 %, with feedback": ("Top 1 % + feedback",),
    "**frugal**": ("frugal",),
    "**frugal**, `averaged = 0.5`": ("frugal, averaged 0.5",),
    "FedLAMA(6, 4), coded": (
        "FedLAMA(6, 4) + Rotate(0.85)",
        "FedLAMA(6, 4) + Rotate(0.78)",
        "FedLAMA(6, 4) + Rotate(0.58)",
    ),
}


def headline() -> str:
    """Some settings on all data sets: the share of FedAvg(6)'s uplink, and the difference in points."""
    of_columns: dict[str, dict[str, Pair]] = {}
    for name in COLUMNS:
        file, folder = TABLES[name]
        pairs = paired(comparison_of(file, folder))
        of_columns[name] = {pair.label: pair for pair in pairs}

    heads: list[str] = []
    for name, title in COLUMNS.items():
        baseline = of_columns[name]["FedAvg(6)"]
        heads.append(f"{title} ({100 * baseline.score:.1f} %)")
    lines = [
        f"| setting | {' | '.join(heads)} |",
        "|---|" + "---:|" * len(heads),
    ]
    for shown, names in ROWS.items():
        cells: list[str] = []
        for pairs in of_columns.values():
            found = [pairs[name] for name in names if name in pairs]
            cells.append(_headline_cell(found[0]) if found else UNKNOWN)
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _headline_cell(pair: Pair) -> str:
    share = share_text(pair.uplink_share)
    if pair.label == "FedAvg(6)":
        return share
    difference = points(pair.mean)
    if pair.error is None:
        return f"{difference} at {share}"
    return f"{difference} ± {100 * pair.error:.2f} at {share}"


def table(name: str) -> str:
    """The rows as Markdown, with the difference of losses; the page says once what all tables have in common."""
    file, folder = TABLES[name]
    grid = paired_grid(comparison_of(file, folder))
    losses = loss_differences(file, folder)
    lines: list[str] = []
    for number, line in enumerate(grid.markdown().splitlines()):
        if not line.startswith("|"):
            continue
        cell = {0: "loss", 1: "---:"}.get(number)
        if cell is None:
            cell = losses[grid.rows[number - 2][0]]
        *cells, seeds = line.strip("|").split("|")
        lines.append("|" + "|".join([*cells, f" {cell} ", seeds]) + "|")
    return "\n".join(lines)


def loss_differences(file: Path, folder: Path) -> dict[str, str]:
    """The loss of each setting beside the baseline's at the same seeds, mean ± standard error."""
    study = load_study(file)
    losses: dict[str, dict[int, float]] = {}
    for cell in study.cells({}):
        path = folder / cell.path / "summary.json"
        if path.exists():
            summary = json.loads(path.read_text(encoding="utf-8"))
            losses.setdefault(cell.setting, {})[cell.config.seed] = summary["loss"]
    baseline = losses[study.options.baseline or ""]
    texts: dict[str, str] = {}
    for setting, own in losses.items():
        differences = [
            loss - baseline[seed] for seed, loss in own.items() if seed in baseline
        ]
        if setting == study.options.baseline or not differences:
            texts[setting] = "–"
            continue
        texts[setting] = f"{fmean(differences):+.3f}".replace("-", "−")
        if len(differences) > 1:
            texts[setting] += (
                f" ± {stdev(differences) / math.sqrt(len(differences)):.3f}"
            )
    return texts


def main() -> None:
    """Every table of the page whose baseline is finished."""
    text = PAGE.read_text(encoding="utf-8")
    text = filled(text, AVERAGES, averages(*TABLES["cifar10"]))
    for name in re.findall("<!-- table (.*) -->", text):
        if name == AVERAGES:
            continue
        _, folder = TABLES[name]
        if not any(folder.glob("fedavg-6/seed*/summary.json")):
            continue
        text = filled(text, name, table(name))
    PAGE.write_text(text, encoding="utf-8")

    text = README.read_text(encoding="utf-8")
    README.write_text(filled(text, "headline", headline()), encoding="utf-8")


def filled(text: str, name: str, content: str) -> str:
    """A page with this table in its place."""
    begins = f"<!-- table {name} -->"
    before, rest = text.split(begins)
    _, after = rest.split("<!-- end -->", maxsplit=1)
    return f"{before}{begins}\n{content}\n<!-- end -->{after}"


if __name__ == "__main__":
    main()
