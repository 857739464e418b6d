"""Fill the tables of results/frontier.md from the summaries below results/frontier: python results/frontier_tables.py

A table stands between `<!-- table NAME -->` and `<!-- end -->`, where NAME is a study's, `pilots` of a study, or a key
of SUMMARIES. A study without a finished baseline leaves its tables as they are. The README's first tables, `short`
and `headline`, have some settings of three studies.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import frontier_codes
import frontier_line
from averages import table as averages
from frontier_studies import (
    BASELINE,
    HEADLINE,
    HERE,
    NAMES,
    ROOT,
    STUDIES,
    file_of,
    has_baseline,
    pairs_of,
)
from paired import comparison_of

from fedlama.report.numbers.pairs import Pair
from fedlama.report.tables.paired import paired_grid, points
from fedlama.report.words.formats import UNKNOWN, share_text
from fedlama.study.study_file import load_study

PAGE = HERE / "frontier.md"
README = ROOT / "README.md"
PILOTS = "pilots "  # and a study's name
NEARLY = 0.1  # of a share: a rate meets its budget as well as that
# Rows: what a setting is called, and what the studies call it, which have other rates; the first that is there is shown
HEADLINE_ROWS: Mapping[str, tuple[str, ...]] = {
    "FedAvg(6)": (BASELINE,),
    "FedLUAR(6, 1)": (
        "FedLUAR(6, 1)",
        "FedLUAR(6, 12)",
    ),
    "FedPart(6)": ("FedPart(6)",),
    "FedAvg(12)": ("FedAvg(12)",),
    "FedLAMA(6, 4)": ("FedLAMA(6, 4)",),
    "FedAvg(24)": ("FedAvg(24)",),
    "4 bits per number": ("4 bits",),
    "1 bit, EDEN": ("Rotate(1)",),
    "the largest 1 %, with feedback": ("Top 1 % + feedback",),
    "rank 1, with feedback (PowerSGD)": ("Rank 1 + feedback",),
    "**frugal**": ("frugal",),
    "**frugal**, `averaged = 0.5`": ("frugal, averaged 0.5",),
    "**frugal**, `share = 0.005`": ("frugal, 0.5 %",),
    "FedLAMA(6, 4), coded": (
        "FedLAMA(6, 4) + Rotate(0.85)",
        "FedLAMA(6, 4) + Rotate(0.85) + window feedback",
        "FedLAMA(6, 4) + Rotate(0.78)",
        "FedLAMA(6, 4) + Rotate(0.78) + window feedback",
        "FedLAMA(6, 4) + Rotate(0.58)",
    ),
}
SHORT_ROWS = (
    "FedAvg(12)",
    "FedLAMA(6, 4)",
    "FedAvg(24)",
    "1 bit, EDEN",
    "the largest 1 %, with feedback",
    "**frugal**",
    "**frugal**, `averaged = 0.5`",
)
PUBLISHED_ROWS: Mapping[str, tuple[str, ...]] = {
    "FedLUAR(6, 1)": ("FedLUAR(6, 1)",),
    "FedLUAR(6, 2)": ("FedLUAR(6, 2)",),
    "FedLUAR(6, 12)": ("FedLUAR(6, 12)",),
    "FedPart(6)": ("FedPart(6)",),
    "8 bits": ("8 bits",),
    "4 bits": ("4 bits",),
    "2 bits": ("2 bits",),
    "1 bit, EDEN (`Rotate(1)`)": ("Rotate(1)",),
    "the top 5 %, feedback over the run": ("Top 5 % + feedback",),
    "the top 1 %, the same": ("Top 1 % + feedback",),
    "rank 2 (PowerSGD), the same": ("Rank 2 + feedback",),
    "rank 1, the same": ("Rank 1 + feedback",),
    "`frugal`": ("frugal",),
}
PUBLISHED_COLUMNS: Mapping[str, str] = {
    "digits": "digits, 0.1",
    "digits-rates": "digits, pilots' rates",
    "unipen62": "UNIPEN-62, pilots' rate",
    "unipen62-cnn": "UNIPEN-62, CNN, pilots' rates",
    "cifar10": "CIFAR-10",
}


@dataclass(frozen=True)
class Answer:
    """A question of the page and its answer, in words; the numbers beside it are of the settings.

    Arguments:
        words: By hand, so they have to be read again when numbers change.
        labels: What studies call the setting; the first that is there is shown.
        both_ways: Whether the share is of the bytes of both directions.
        over_the_line: Whether the difference is to FedAvg's line at equal bytes, not to FedAvg(6).
    """

    words: str
    labels: tuple[str, ...]
    both_ways: bool = False
    over_the_line: bool = False


ANSWERS = (
    Answer(
        "**1. Without codes**, is FedLAMA(6, 4) above a FedAvg of equal bytes? On ResNet20; a little on one CNN",
        ("FedLAMA(6, 4)",),
        over_the_line=True,
    ),
    Answer(
        "**2. With codes**, what is best at a hundredth? A code alone (`frugal`), within half a point on the small "
        "networks",
        ("frugal",),
    ),
    Answer(
        "Intervals beside the code (`averaged = 0.5`; on the digits FedLAMA)? On small networks no, on ResNet20 yes",
        (
            "frugal, averaged 0.5",
            "FedLAMA(6, 4) + Rotate(0.58)",
            "FedLAMA(6, 4) + Rotate(0.85)",
            "FedLAMA(6, 4) + Rotate(0.85) + window feedback",
            "FedLAMA(6, 4) + Rotate(0.78)",
        ),
    ),
    Answer(
        "Error feedback around the code? No",
        ("Rotate(0.28) + window feedback", "Rotate(0.31) + window feedback"),
    ),
    Answer(
        "Half a per cent? Nearly as good",
        ("frugal, 0.5 %", "Rotate(0.135)", "Rotate(0.15)"),
    ),
    Answer(
        "**3. The published**: what is as good? One-bit EDEN, for three times the bytes",
        ("Rotate(1)",),
    ),
    Answer(
        "Top-k with feedback? Not with clients that rarely return",
        ("Top 1 % + feedback",),
    ),
    Answer(
        "**4. Both directions** below a tenth? On small networks yes: 1.6 bits down, a window of eight rounds or more",
        (
            "frugal, downlink Rotate(1.6)",
            "frugal, averaged 0.5",
        ),
        both_ways=True,
    ),
)


def answers() -> str:
    """The page's first table: what was asked, the answer, and what it rests on."""
    studies = [name for name in PUBLISHED_COLUMNS if has_baseline(name)]
    titles = [PUBLISHED_COLUMNS[name] for name in studies]
    lines = [
        f"| question and answer | {' | '.join(titles)} |",
        "|---|" + "---:|" * len(studies),
    ]
    pairs = {name: {pair.label: pair for pair in pairs_of(name)} for name in studies}
    points_of = {name: frontier_line.points_of(name) for name in studies}
    for answer in ANSWERS:
        cells: list[str] = []
        for name in studies:
            if answer.over_the_line:
                cells.append(_over_the_line(points_of[name], answer.labels[0]))
            else:
                cells.append(_answered(pairs[name], answer))
        lines.append(f"| {answer.words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _over_the_line(
    found: Mapping[str, Mapping[int, frontier_line.Point]], setting: str
) -> str:
    gains, shares = frontier_line.gains_of(found, setting)
    if not gains:
        return UNKNOWN
    error = None
    if len(gains) > 1:
        error = stdev(gains) / math.sqrt(len(gains))
    return _with_seeds(fmean(gains), error, fmean(shares), len(gains))


def _answered(pairs: Mapping[str, Pair], answer: Answer) -> str:
    for label in answer.labels:
        if label in pairs:
            pair = pairs[label]
            share = pair.total_share if answer.both_ways else pair.uplink_share
            return _with_seeds(pair.mean, pair.error, share, len(pair.seeds))
    return UNKNOWN


def _with_seeds(mean: float, error: float | None, share: float, seeds: int) -> str:
    difference = points(mean)
    if error is not None:
        difference += f" ± {100 * error:.2f}"
    return f"{difference} at {share_text(share)} ({seeds})"


def combinations() -> str:
    """Which combination of code, feedback and intervals gives what at which share of the uplink."""
    titles = [
        f"{100 * tick:g} %" for tick in sorted(frontier_codes.TICKS, reverse=True)
    ]
    lines = [f"| | {' | '.join(titles)} |", "|---|" + "---:|" * len(titles)]
    for title, name in frontier_codes.PANELS.items():
        lines.append(f"| **{title}** |" + " |" * len(titles))
        pairs = pairs_of(name)
        for combination, look in frontier_codes.COMBINATIONS.items():
            own = [
                pair
                for pair in pairs
                if frontier_codes.combination_of(pair.label) == combination
            ]
            cells = [
                _at_share(own, tick)
                for tick in sorted(frontier_codes.TICKS, reverse=True)
            ]
            lines.append(f"| {look.meaning} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _at_share(pairs: Sequence[Pair], share: float) -> str:
    """The setting whose uplink is about this share."""
    for pair in pairs:
        if abs(pair.uplink_share / share - 1) > NEARLY:
            continue
        text = points(pair.mean)
        if pair.error is not None:
            text += f" ± {100 * pair.error:.2f}"
        if "FedAvg(12)" in pair.label:
            text += ", FedAvg(12)"
        return text
    return UNKNOWN


def short() -> str:
    """The README's first: some rows of its second."""
    rows = {name: HEADLINE_ROWS[name] for name in SHORT_ROWS}
    return side_by_side(rows, _headline_columns())


def headline() -> str:
    """Some settings on all data sets: the share of FedAvg(6)'s uplink, and the difference in points."""
    return side_by_side(HEADLINE_ROWS, _headline_columns())


def _headline_columns() -> dict[str, dict[str, Pair]]:
    of_columns: dict[str, dict[str, Pair]] = {}
    for title, name in HEADLINE.items():
        pairs = {pair.label: pair for pair in pairs_of(name)}
        accuracy = 100 * pairs[BASELINE].score
        of_columns[f"{title} ({accuracy:.1f} %)"] = pairs
    return of_columns


def published() -> str:
    """What others published, at every budget that was run."""
    names = [label for labels in PUBLISHED_ROWS.values() for label in labels]
    names.remove("frugal")
    of_columns: dict[str, dict[str, Pair]] = {}
    for name, title in PUBLISHED_COLUMNS.items():
        if not has_baseline(name):
            continue
        pairs = {pair.label: pair for pair in pairs_of(name)}
        if any(label in pairs for label in names):
            of_columns[title] = pairs
    return side_by_side(PUBLISHED_ROWS, of_columns)


def side_by_side(
    rows: Mapping[str, tuple[str, ...]], columns: Mapping[str, Mapping[str, Pair]]
) -> str:
    """A Markdown table with a column per study.

    Arguments:
        rows: what a setting is called, and the labels that it may have.
        columns: by heading, the settings of a study by label.
    """
    lines = [f"| setting | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for shown, labels in rows.items():
        cells: list[str] = []
        for pairs in columns.values():
            found = [pairs[label] for label in labels if label in pairs]
            cells.append(_cell(found[0]) if found else UNKNOWN)
        if set(cells) != {UNKNOWN}:
            lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(pair: Pair) -> str:
    share = share_text(pair.uplink_share)
    if pair.label == BASELINE:
        return share
    difference = points(pair.mean)
    if pair.error is None:
        return f"{difference} at {share}"
    return f"{difference} ± {100 * pair.error:.2f} at {share}"


def pilots(name: str) -> str:
    """The scores by which a study's learning rates were chosen, per cent."""
    path = STUDIES / name / "pilots.json"
    choices = json.loads(path.read_text(encoding="utf-8"))["choices"]
    rates = sorted(
        {rate for own in choices.values() for rate in own["scores"]}, key=float
    )
    lines = [f"| setting | {' | '.join(rates)} |", "|---|" + "---:|" * len(rates)]
    for setting, own in choices.items():
        cells = [_score(own["scores"], rate) for rate in rates]
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _score(scores: Mapping[str, Any], rate: str) -> str:
    if rate not in scores:
        return UNKNOWN
    score = scores[rate]
    return "diverged" if score is None else f"{100 * score:.1f}"


def table(name: str) -> str:
    """The rows as Markdown, with the difference of losses; the page says once what all tables have in common."""
    grid = paired_grid(comparison_of(file_of(name), STUDIES / name))
    losses = loss_differences(name)
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


def loss_differences(name: str) -> dict[str, str]:
    """The loss of each setting beside the baseline's at the same seeds, mean ± standard error."""
    study = load_study(file_of(name))
    losses: dict[str, dict[int, float]] = {}
    for cell in study.cells({}):
        path = STUDIES / name / cell.path / "summary.json"
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


SUMMARIES: Mapping[str, Callable[[], str]] = {
    "answers": answers,
    "combinations": combinations,
    "averages": lambda: averages(file_of("cifar10"), STUDIES / "cifar10"),
    "line": frontier_line.table,
    "published": published,
}


def content_of(name: str) -> str | None:
    """What a table of the page says now; None if its runs are not there."""
    if name in SUMMARIES:
        return SUMMARIES[name]()
    if name.startswith(PILOTS):
        study = name.removeprefix(PILOTS)
        has_pilots = (STUDIES / study / "pilots.json").exists()
        return pilots(study) if has_pilots else None
    assert name in NAMES, f"no study is called {name}"
    return table(name) if has_baseline(name) else None


def main() -> None:
    """Every table of the page whose runs are there."""
    text = PAGE.read_text(encoding="utf-8")
    for name in re.findall("<!-- table (.*) -->", text):
        content = content_of(name)
        if content is not None:
            text = filled(text, name, content)
    PAGE.write_text(text, encoding="utf-8")

    text = README.read_text(encoding="utf-8")
    text = filled(text, "short", short())
    text = filled(text, "headline", headline())
    README.write_text(text, encoding="utf-8")


def filled(text: str, name: str, content: str) -> str:
    """A page with this table in its place."""
    begins = f"<!-- table {name} -->"
    before, rest = text.split(begins)
    _, after = rest.split("<!-- end -->", maxsplit=1)
    return f"{before}{begins}\n{content}\n<!-- end -->{after}"


if __name__ == "__main__":
    main()
