"""The paper's figures drawn from our runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase

from fedlama.paper.recipe import Draw
from fedlama.paper.reproduce import Panel, Reproduction
from fedlama.report.numbers.comparison import (
    ComparedSetting,
    RunComparison,
    compare,
)
from fedlama.report.numbers.crossings import crossings
from fedlama.report.numbers.layers import drawn_rows
from fedlama.report.numbers.looks import looks_of
from fedlama.report.numbers.reproduction import PanelOutcome
from fedlama.report.pictures.charts import Chart
from fedlama.report.pictures.crossings import crossing_chart
from fedlama.report.pictures.frontier import frontier_chart
from fedlama.report.pictures.layer_marks import Counted
from fedlama.report.pictures.layers import layer_chart, many_bars
from fedlama.report.pictures.measures import score
from fedlama.report.pictures.overview import Sample, standing_alone
from fedlama.report.pictures.scores import score_charts, score_figure
from fedlama.report.pictures.style import svg
from fedlama.report.words.formats import joined, seeds_named, seeds_spanned
from fedlama.run.directory import ROUNDS
from fedlama.run.files import write_atomically
from fedlama.run.recorded import RecordedRun

DRAWN_FROM_RECORDS: tuple[Draw, ...] = ("crossing", "curves")


@dataclass(frozen=True)
class _Picture:
    """A chart of the report, and what it needs to stand alone."""

    chart: Chart
    seeds: str
    # Of a setting in the legend; None where curves are named in the drawing
    sample: Sample | None


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
        comparison = _in_the_studys_colours(outcome)
        if made.draw == "curves":
            comparison = _over_recorded_seeds(comparison)
        lacking = _runs_without_records(made, outcome)
        pictures = _pictures(made, comparison, all_layers=all_layers)
        # It may have been drawn when they were there, such as before they were published.
        kept = _drawn_before(folder, name)
        if pictures and lacking and kept:
            notes.append(
                f"{name}: kept as it is, {_not_there(lacking)}; delete the picture to draw it from the rest"
            )
            paths += kept
            continue

        notes += _lacking(name, made, lacking, is_drawn=bool(pictures))
        for number, picture in enumerate(pictures, start=1):
            path = folder / f"{name}.svg"
            if len(pictures) > 1:
                path = folder / f"{name}-{number}.svg"
            _write(picture, comparison, outcome.panel, path)
            paths.append(path)
    return Drawn(tuple(paths), tuple(notes))


def _in_the_studys_colours(outcome: PanelOutcome) -> RunComparison:
    """As if all settings of the study were finished: those to come must not change the colours of these."""
    planned = outcome.panel.study.settings
    looks = looks_of([(setting.name, setting.config) for setting in planned])
    by_name: dict[str, int] = {}
    for setting, look in zip(planned, looks, strict=True):
        by_name[setting.name] = look

    settings: list[ComparedSetting] = []
    for setting in outcome.comparison.settings:
        look = by_name.get(setting.label, setting.look)
        settings.append(replace(setting, look=look))
    return replace(outcome.comparison, settings=tuple(settings))


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
    """The settings and seeds that have a curve: those whose records are kept."""
    settings: list[ComparedSetting] = []
    for setting in comparison.settings:
        recorded = _recorded(setting)
        if len(recorded) == len(setting.runs):
            settings.append(setting)
        elif recorded:
            (own,) = compare(recorded).settings
            settings.append(replace(setting, curve=own.curve, runs=own.runs))
    return replace(comparison, settings=tuple(settings))


def _write(
    picture: _Picture, comparison: RunComparison, panel: Panel, path: Path
) -> None:
    title = f"{picture.chart.title}\n{panel.title}, {picture.seeds}{_length(panel)}"
    if picture.sample is None:
        figure = standing_alone(picture.chart.figure, title)
    else:
        figure = standing_alone(picture.chart.figure, title, comparison, picture.sample)
    write_atomically(path, svg(figure))


def _seeds_of(settings: Iterable[ComparedSetting]) -> str:
    """Of all settings; the legend names those of a setting that has fewer."""
    seeds: set[int] = set()
    for setting in settings:
        seeds.update(setting.seeds)
    return seeds_spanned(list(seeds))


def _length(panel: Panel) -> str:
    """How long the runs are, and in which precision, if not the usual one."""
    train = panel.study.settings[0].config.train
    text = f", {train.iterations:,} steps"
    if train.precision != "float32":
        text += f" in {train.precision}"
    return text


def _pictures(
    made: Reproduction, comparison: RunComparison, *, all_layers: bool
) -> list[_Picture]:
    """The report's charts that show what the paper's figure shows."""
    if made.draw == "crossing":
        return _crossing_pictures(comparison)
    if made.draw == "curves":
        return _curve_pictures(comparison)
    if made.draw == "aggregations":
        return _layer_pictures(comparison, "aggregations", all_layers=all_layers)
    if made.draw == "sizes":
        return _layer_pictures(comparison, "uplink_bytes", all_layers=all_layers)

    chart = frontier_chart(comparison)
    if chart is None:
        return []
    return [_Picture(chart, _seeds_of(comparison.settings), "point")]


def _crossing_pictures(comparison: RunComparison) -> list[_Picture]:
    """One per setting, each of one run."""
    pictures: list[_Picture] = []
    for number, crossing in enumerate(crossings(comparison), start=1):
        chart = crossing_chart(crossing, number)
        seeds = seeds_spanned([crossing.seed])
        pictures.append(_Picture(chart, seeds, sample=None))
    return pictures


def _curve_pictures(comparison: RunComparison) -> list[_Picture]:
    """Over steps, and from the first evaluation on: a picture on paper cannot be asked for the rest."""
    for chart in score_charts(comparison):
        figure = score_figure(comparison, score(comparison), "steps", whole=True)
        whole = replace(chart, figure=figure)
        return [_Picture(whole, _seeds_of(comparison.settings), "line")]
    return []


def _layer_pictures(
    comparison: RunComparison, of: Counted, *, all_layers: bool
) -> list[_Picture]:
    chart = layer_chart(comparison, of, kernels_only=not all_layers)
    if chart is None:
        return []

    sample: Sample = "bar"
    shown = drawn_rows(comparison, kernels_only=not all_layers)
    if many_bars(shown, comparison):
        sample = "dot"
    return [_Picture(chart, _seeds_of(comparison.settings), sample)]
