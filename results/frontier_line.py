"""What layer-wise intervals without codes gain over FedAvg at equal bytes: python results/frontier_line.py

At every seed FedAvg's line goes through its settings, straight over the logarithm of the bytes. A setting is compared
with the line at its own bytes, at the seeds at which all of FedAvg's settings were run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean, stdev

from frontier_studies import STUDIES, file_of, has_baseline

from fedlama.report.tables.paired import points
from fedlama.report.words.formats import UNKNOWN, share_text
from fedlama.study.study_file import load_study

FEDAVG = ("FedAvg(6)", "FedAvg(12)", "FedAvg(24)", "FedAvg(48)")
SETTINGS = (
    "FedLAMA(6, 4)",
    "Budget(6, 24, 0.4)",
    "Budget(6, 24, 0.4, staggered)",
    "Budget(6, 24, 0.4, relative)",
    "Budget(6, 48, 0.25)",
    "FedLUAR(6, 1)",
    "FedLUAR(6, 2)",
    "FedLUAR(6, 12)",
    "FedPart(6)",
)
COLUMNS: Mapping[str, str] = {
    "digits": "digits, 0.1",
    "digits-rates": "digits, pilots' rates",
    "unipen62": "UNIPEN-62, pilots' rate",
    "unipen62-cnn": "UNIPEN-62, CNN, pilots' rates",
    "cifar10": "CIFAR-10",
}
Point = tuple[float, float]  # uplink bytes, accuracy


def points_of(name: str) -> dict[str, dict[int, Point]]:
    """By setting and seed."""
    found: dict[str, dict[int, Point]] = {}
    for cell in load_study(file_of(name)).cells({}):
        path = STUDIES / name / cell.path / "summary.json"
        if path.exists():
            summary = json.loads(path.read_text(encoding="utf-8"))
            point = (summary["uplink_bytes"], summary["accuracy"])
            found.setdefault(cell.setting, {})[cell.config.seed] = point
    return found


def height_of_line(corners: list[Point], uplink: float) -> float | None:
    """FedAvg's accuracy at these bytes; None beyond its settings."""
    for (fewer, low), (more, high) in pairwise(sorted(corners)):
        if fewer <= uplink <= more:
            part = math.log(uplink / fewer) / math.log(more / fewer)
            return low + part * (high - low)
    return None


def gains_of(
    found: Mapping[str, Mapping[int, Point]], setting: str
) -> tuple[list[float], list[float]]:
    """Of a setting over the line, seed by seed, and at which shares of FedAvg(6)'s bytes."""
    lines = [found[name] for name in FEDAVG if name in found]
    gains: list[float] = []
    shares: list[float] = []
    for seed, (uplink, accuracy) in found.get(setting, {}).items():
        if not all(seed in line for line in lines):
            continue
        corners = [line[seed] for line in lines]
        height = height_of_line(corners, uplink)
        if height is not None:
            gains.append(accuracy - height)
            shares.append(uplink / found[FEDAVG[0]][seed][0])
    return gains, shares


def gain(found: Mapping[str, Mapping[int, Point]], setting: str) -> str:
    """Of a setting over the line, and at which share of FedAvg(6)'s bytes."""
    gains, shares = gains_of(found, setting)
    if not gains:
        return UNKNOWN
    text = points(fmean(gains))
    if len(gains) == 1:
        text += " (one seed)"
    else:
        text += f" ± {100 * stdev(gains) / math.sqrt(len(gains)):.2f}"
    return f"{text} at {share_text(fmean(shares))}"


def table() -> str:
    """Markdown, with the studies that are there."""
    studies = {name: points_of(name) for name in COLUMNS if has_baseline(name)}
    lines = [
        f"| setting | {' | '.join(COLUMNS[name] for name in studies)} |",
        "|---|" + "---:|" * len(studies),
    ]
    for setting in SETTINGS:
        cells = [gain(found, setting) for found in studies.values()]
        if set(cells) != {UNKNOWN}:
            lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
