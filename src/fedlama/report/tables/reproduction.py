"""The paper's table beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedlama.paper.reproduce import Reproduction
from fedlama.paper.titles import SMOKE, SMOKE_NOTE
from fedlama.report.numbers.comparison import ComparedSetting
from fedlama.report.numbers.frontier import Standing, standing_in
from fedlama.report.numbers.pairs import paired_difference
from fedlama.report.numbers.reproduction import PanelOutcome
from fedlama.report.tables.grids import Grid
from fedlama.report.words.formats import (
    UNKNOWN,
    joined,
    percent,
    spread_text,
    upper_first,
)
from fedlama.report.words.notes import rate_text, seeds_text, warning_fields
from fedlama.report.words.pairs import (
    AVERAGE_HEADINGS,
    average_cells,
    average_fields,
    difference_text,
    shows_averages,
)
from fedlama.report.words.panels import panel_sentences

# The difference to FedAvg's line of accuracy over bytes
EQUAL_BYTES = "at equal bytes"
# The numbers of some of a table's panels, ascending
Panels = tuple[int, ...]


def reproduction_grid(made: Reproduction, outcomes: Sequence[PanelOutcome]) -> Grid:
    """The paper's figures beside ours, panel by panel.

    Arguments:
        made: the table or figure of the paper.
        outcomes: what came of each of its panels.
    """
    rows: list[list[str]] = []
    records: list[dict[str, object]] = []
    parts: dict[int, str] = {}
    with_averages = _any_shows_averages(outcomes)
    for outcome in outcomes:
        parts[len(rows)] = outcome.panel.title
        for setting in outcome.comparison.settings:
            rows.append(_cells(setting, outcome, with_averages=with_averages))
            records.append(_record(setting, outcome))

    headings = _headings(outcomes)
    return Grid(
        headings=headings,
        rows=rows,
        notes=_notes(made, outcomes),
        records=records,
        parts=parts,
        caption=_caption(made),
        narrow=_narrow(headings),
    )


def _headings(outcomes: Sequence[PanelOutcome]) -> list[str]:
    cost = _cost_heading(outcomes)
    names = [
        "setting",
        "paper: accuracy",
        cost,
        "rate",
        "here: accuracy",
        "difference",
        EQUAL_BYTES,
    ]
    if _any_shows_averages(outcomes):
        names += AVERAGE_HEADINGS
    return [*names, cost, "rate", "seeds"]


def _any_shows_averages(outcomes: Sequence[PanelOutcome]) -> bool:
    return any(shows_averages(outcome.comparison) for outcome in outcomes)


def _narrow(headings: Sequence[str]) -> list[int]:
    """The columns that fit eighty characters: not what notes tell of, which are learning rates and seeds too."""
    left_out = ("rate", EQUAL_BYTES, *AVERAGE_HEADINGS, "seeds")
    return [
        number for number, heading in enumerate(headings) if heading not in left_out
    ]


def _cost_heading(outcomes: Sequence[PanelOutcome]) -> str:
    """What costs are a share of, by its name where all panels have the same."""
    names: set[str] = set()
    for outcome in outcomes:
        names.add(outcome.baseline)
    if len(names) == 1:
        return f"cost, of {names.pop()}"
    return "cost, of each first"  # which a note names


def _caption(made: Reproduction) -> str:
    caption = f"{made.title}, at the scale {made.scale!r}"
    if made.scale == "smoke":
        return f"{SMOKE}, no result: {caption}"
    return caption


def _cells(
    setting: ComparedSetting, outcome: PanelOutcome, *, with_averages: bool
) -> list[str]:
    accuracy = UNKNOWN
    cost = UNKNOWN
    rate = UNKNOWN
    printed = outcome.printed(setting)
    if printed is not None:
        accuracy = f"{printed.accuracy:.2f} ± {printed.spread:g} %"
        rate = f"{printed.rate:g}"
        if printed.cost is not None:
            cost = f"{printed.cost:.2f} %"

    comparison = outcome.comparison
    cells = [
        setting.label,
        accuracy,
        cost,
        rate,
        spread_text(comparison.score(setting), comparison.metric),
        difference_text(paired_difference(setting, comparison), comparison.metric),
        _at_equal_bytes(standing_in(setting.label, comparison), comparison.metric),
    ]
    if with_averages:
        cells += average_cells(setting, comparison)
    return [
        *cells,
        percent(setting.relative_cost),
        rate_text(setting),
        seeds_text(setting),
    ]


def _at_equal_bytes(stands: Standing | None, metric: str) -> str:
    if stands is None:
        return UNKNOWN
    return difference_text(stands.difference, metric)


def _record(setting: ComparedSetting, outcome: PanelOutcome) -> dict[str, object]:
    """The numbers of a row; the paper's percentages as shares, like ours."""
    record: dict[str, object] = {
        "group": outcome.panel.title,
        "setting": setting.label,
        "paper_accuracy": None,
        "paper_deviation": None,
        "paper_cost": None,
        "paper_learning_rate": None,
        outcome.comparison.metric: None,
        "deviation": None,
        "difference": None,
        "difference_error": None,
        **_equal_bytes_fields(standing_in(setting.label, outcome.comparison)),
        **average_fields(setting, outcome.comparison),
        "relative_cost": setting.relative_cost,
        "uplink_bytes": setting.uplink_bytes,
        "downlink_bytes": setting.downlink_bytes,
        "learning_rate": setting.config.local.rate_if_known,
        "seeds": " ".join(map(str, setting.seeds)),
        **warning_fields(outcome.comparison),
    }

    printed = outcome.printed(setting)
    if printed is not None:
        record["paper_accuracy"] = printed.accuracy / 100
        record["paper_deviation"] = printed.spread / 100
        record["paper_learning_rate"] = printed.rate
        if printed.cost is not None:
            record["paper_cost"] = printed.cost / 100

    score = outcome.comparison.score(setting)
    if score is not None:
        record[outcome.comparison.metric] = score.mean
        record["deviation"] = score.deviation

    difference = paired_difference(setting, outcome.comparison)
    if difference is not None:
        record["difference"] = difference.mean
        record["difference_error"] = difference.error
    return record


def _equal_bytes_fields(stands: Standing | None) -> dict[str, object]:
    """The difference to FedAvg's line, its error, between which settings it was read off and over which seeds."""
    fields: dict[str, object] = {
        "equal_bytes_difference": None,
        "equal_bytes_error": None,
        "equal_bytes_between": None,
        "equal_bytes_seeds": None,
    }
    if stands is not None:
        difference = stands.difference
        fields["equal_bytes_difference"] = difference.mean
        fields["equal_bytes_error"] = difference.error
        fields["equal_bytes_between"] = joined(stands.between)
        fields["equal_bytes_seeds"] = " ".join(map(str, difference.seeds))
    return fields


def _notes(made: Reproduction, outcomes: Sequence[PanelOutcome]) -> list[str]:
    """What was scaled down, what the paper is not consistent in, and who wins at equal bytes."""
    found: list[str] = []
    if made.scale == "smoke":
        # What such runs reach is not worth a sentence.
        found.append(SMOKE_NOTE)
    else:
        found += _panel_notes(outcomes)

    # No reader should take a number from here for one of the paper.
    if made.scale == "cpu":
        found.append(
            "Scaled down: the accuracies here are not the paper's and are not to be read as such."
        )
    for remark in made.remarks:
        found.append(f"The paper: {remark}")
    return found


def _panel_notes(outcomes: Sequence[PanelOutcome]) -> list[str]:
    """What there is to say of the panels: first what is true of all, then what is true of some, which are named.

    Groups that the paper tells apart may have the same runs once they are scaled down, and so the same sentences.
    """
    every_panel = tuple(range(len(outcomes)))
    is_alone = len(outcomes) == 1
    common: list[str] = []
    of_some: list[tuple[Panels, str]] = []
    for number, (sentence, panels) in enumerate(_sentences_of_panels(outcomes)):
        # The first note on one panel alone names it: a file of one group is read beside those of the others.
        is_named = is_alone and number == 0
        if panels == every_panel and not is_named:
            common.append(upper_first(sentence))
        else:
            of_some.append((panels, sentence))

    # In the order of the first panel that says it
    of_some.sort(key=_first_panel)
    named: list[str] = []
    for panels, sentence in of_some:
        names = _names_of(panels, outcomes)
        named.append(f"{names}: {sentence}")
    if is_alone:
        return [*named, *common]
    return [*common, *named]


def _sentences_of_panels(
    outcomes: Sequence[PanelOutcome],
) -> list[tuple[str, Panels]]:
    """Every sentence once, with the panels that say it: first what was scaled down, then what came of it."""
    found: list[tuple[str, Panels]] = []
    clauses = _with_panels([outcome.panel.scaled for outcome in outcomes])
    # Before whole sentences are compared: two groups that differ in one clause of five share the other four, which
    # would be said twice if each group's were joined.
    for panels, own in _by_panels(clauses).items():
        together = "; ".join(own)
        found.append((f"{together}.", panels))

    others = _with_panels([panel_sentences(outcome) for outcome in outcomes])
    found += others.items()
    return found


def _with_panels(said: Sequence[Sequence[str]]) -> dict[str, Panels]:
    """Each sentence once, with the numbers of the panels that say it."""
    found: dict[str, Panels] = {}
    for number, sentences in enumerate(said):
        for sentence in dict.fromkeys(sentences):
            before = found.get(sentence, ())
            found[sentence] = (*before, number)
    return found


def _by_panels(clauses: Mapping[str, Panels]) -> dict[Panels, list[str]]:
    """The other way round: for the panels that say the same, what they say."""
    found: dict[Panels, list[str]] = {}
    for clause, panels in clauses.items():
        together = found.setdefault(panels, [])
        together.append(clause)
    return found


def _first_panel(note: tuple[Panels, str]) -> int:
    panels, _ = note
    return panels[0]


def _names_of(panels: Panels, outcomes: Sequence[PanelOutcome]) -> str:
    titles: list[str] = []
    for number in panels:
        titles.append(outcomes[number].panel.title)
    return "; ".join(titles)
