"""The paper's figures drawn from our runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase

from fedlama.paper.recipe import Draw
from fedlama.paper.reproduce import Reproduction
from fedlama.report.numbers.comparison import (
    ComparedSetting,
    RunComparison,
    compare,
)
from fedlama.report.numbers.crossings import crossings
from fedlama.report.numbers.reproduction import PanelOutcome
from fedlama.report.pictures.charts import Chart
from fedlama.report.pictures.crossings import crossing_chart
from fedlama.report.pictures.frontier import frontier_chart
from fedlama.report.pictures.layers import layer_chart
from fedlama.report.pictures.overview import standing_alone
from fedlama.report.pictures.scores import score_charts
from fedlama.report.pictures.style import svg
from fedlama.report.words.formats import joined, seeds_named
from fedlama.run.directory import ROUNDS
from fedlama.run.files import write_atomically
from fedlama.run.recorded import RecordedRun

DRAWN_FROM_RECORDS: tuple[Draw, ...] = ("crossing", "curves")


@dataclass(frozen=True)
class Drawn:
    """The pictures of a table or figure, and what there is to say of those that lack something."""

    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def draw_figures(
    made: Reproduction,
    outcomes: Sequence[PanelOutcome],
    folder: Path,
    *,
    all_layers: bool = False,
) -> Drawn:
    """One SVG per panel, for crossings one per setting; of a table, what was reached over bytes.

    Arguments:
        made: the table or figure of the paper.
        outcomes: what came of each of its panels.
        folder: made if it is not there.
        all_layers: whether layers that are never lengthened are drawn as well, which the paper leaves out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    notes: list[str] = []
    for position, outcome in enumerate(outcomes):
        name = made.file_name
        if max(len(outcomes), len(made.panels)) > 1:
            name += _letter(made, outcomes, position)
        shown = outcome
        if made.draw == "curves":
            comparison = _over_recorded_seeds(outcome.comparison)
            shown = replace(outcome, comparison=comparison)
        lacking = _runs_without_records(made, outcome)
        charts = _charts(made, shown.comparison, all_layers=all_layers)
        # It may have been drawn when they were there, such as before they were published.
        kept = _drawn_before(folder, name)
        if charts and lacking and kept:
            notes.append(
                f"{name}: kept as it is, {_not_there(lacking)}; delete the picture to draw it from the rest"
            )
            paths += kept
            continue

        notes += _lacking(name, made, lacking, is_drawn=bool(charts))
        for number, chart in enumerate(charts, start=1):
            path = folder / f"{name}.svg"
            if len(charts) > 1:
                path = folder / f"{name}-{number}.svg"
            _write(chart, made, shown, path)
            paths.append(path)
    return Drawn(tuple(paths), tuple(notes))


def _letter(made: Reproduction, outcomes: Sequence[PanelOutcome], position: int) -> str:
    """Of a panel, as the paper has them: those before it may not be finished."""
    if len(outcomes) < len(made.panels):
        panel = outcomes[position].panel
        position = made.panels.index(panel)
    return ascii_lowercase[position]


def _drawn_before(folder: Path, name: str) -> list[Path]:
    """The pictures of a panel that are there: one, or for crossings one per setting."""
    one = folder / f"{name}.svg"
    if one.is_file():
        return [one]
    return sorted(folder.glob(f"{name}-[0-9].svg"))


def _lacking(
    name: str, made: Reproduction, without: Sequence[str], *, is_drawn: bool
) -> list[str]:
    """That a figure is not drawn, or without some settings; a table is told to lack nothing, it has its numbers."""
    if made.draw is None:
        return []
    if not without:
        if is_drawn:
            return []
        return [f"{name}: not drawn, no run has what it shows"]

    if is_drawn:
        return [f"{name}: drawn without some runs, {_not_there(without)}"]
    return [f"{name}: not drawn, {_not_there(without)}"]


def _not_there(without: Sequence[str]) -> str:
    return f"the records of rounds ({ROUNDS}) of {joined(without)} are not there"


def _runs_without_records(made: Reproduction, outcome: PanelOutcome) -> list[str]:
    """The settings that a figure would need the records of; a table needs none."""
    if made.draw in DRAWN_FROM_RECORDS:
        return _without_records(made.draw, outcome.comparison)
    return []


def _without_records(draw: Draw, comparison: RunComparison) -> list[str]:
    """The settings that a curve or a crossing would need the records of, with the seeds if it is some of them."""
    found: list[str] = []
    for setting in comparison.settings:
        if draw == "crossing" and setting.config.policy.kind != "fedlama":
            continue
        recorded = _recorded(setting)
        if not recorded:
            found.append(setting.label)
        elif draw == "curves" and len(recorded) < len(setting.runs):
            # A curve is over all seeds, a crossing of one.
            lacking = [run.seed for run in setting.runs if not run.records]
            found.append(f"{setting.label} at {seeds_named(lacking)}")
    return found


def _recorded(setting: ComparedSetting) -> list[RecordedRun]:
    return [run for run in setting.runs if run.records]


def _over_recorded_seeds(comparison: RunComparison) -> RunComparison:
    """The same with curves over the seeds whose records are kept, which a legend then names."""
    settings: list[ComparedSetting] = []
    for setting in comparison.settings:
        shown = setting
        recorded = _recorded(setting)
        if 0 < len(recorded) < len(setting.runs):
            (own,) = compare(recorded).settings
            shown = replace(setting, curve=own.curve, runs=own.runs)
        settings.append(shown)
    return replace(comparison, settings=tuple(settings))


def _write(chart: Chart, made: Reproduction, outcome: PanelOutcome, path: Path) -> None:
    panel = f"{outcome.panel.title}{_one_seed(made, outcome)}{_length(outcome)}"
    title = f"{chart.title}\n{panel}"
    legend = outcome.comparison
    if made.draw == "crossing":
        # Its curves are named where they are
        legend = None
    figure = standing_alone(chart.figure, title, legend)
    write_atomically(path, svg(figure))


def _one_seed(made: Reproduction, outcome: PanelOutcome) -> str:
    """A picture without a spread says why."""
    if made.draw != "crossing":
        for setting in outcome.comparison.settings:
            if len(setting.seeds) > 1:
                return ""
    return ", one seed"


def _length(outcome: PanelOutcome) -> str:
    """How long the runs are, and in which precision, if not the usual one."""
    train = outcome.panel.study.settings[0].config.train
    text = f", {train.iterations:,} steps"
    if train.precision != "float32":
        text += f" in {train.precision}"
    return text


def _charts(
    made: Reproduction, comparison: RunComparison, *, all_layers: bool
) -> list[Chart]:
    """The report's charts that show what the paper's figure shows."""
    if made.draw == "crossing":
        return [
            crossing_chart(one, number)
            for number, one in enumerate(crossings(comparison), start=1)
        ]
    if made.draw == "curves":
        return score_charts(comparison)[:1]  # over steps

    if made.draw == "aggregations":
        chart = layer_chart(comparison, "aggregations", kernels_only=not all_layers)
    elif made.draw == "sizes":
        chart = layer_chart(comparison, "uplink_bytes", kernels_only=not all_layers)
    else:
        chart = frontier_chart(comparison)
    if chart is None:
        return []
    return [chart]
