"""The paper's table beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from fedlama.paper.reproduce import Reproduction
from fedlama.paper.titles import SMOKE, SMOKE_NOTE
from fedlama.report.numbers.comparison import ComparedSetting
from fedlama.report.numbers.pairs import paired_difference
from fedlama.report.numbers.reproduction import PanelOutcome, long_share
from fedlama.report.tables.grids import Grid
from fedlama.report.words.formats import UNKNOWN, percent, spread_text, upper_first
from fedlama.report.words.frontier import equal_bytes
from fedlama.report.words.notes import rate_text, seeds_text, warning_fields
from fedlama.report.words.pairs import (
    AVERAGE_HEADINGS,
    average_cells,
    average_fields,
    average_notes,
    difference_notes,
    difference_text,
    shows_averages,
    unequal_seeds_notes,
)
from fedlama.report.words.study import choice_notes, divergence_notes

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
    ]
    if _any_shows_averages(outcomes):
        names += AVERAGE_HEADINGS
    return [*names, cost, "rate", "seeds"]


def _any_shows_averages(outcomes: Sequence[PanelOutcome]) -> bool:
    return any(shows_averages(outcome.comparison) for outcome in outcomes)


def _narrow(headings: Sequence[str]) -> list[int]:
    """The columns that fit eighty characters: not learning rates and moving averages."""
    left_out = ("rate", *AVERAGE_HEADINGS)
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
    ]
    if with_averages:
        cells += average_cells(setting, comparison)
    return [
        *cells,
        percent(setting.relative_cost),
        rate_text(setting),
        seeds_text(setting),
    ]


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
    scaled = _with_panels([outcome.panel.scaled for outcome in outcomes])
    clauses: dict[Panels, list[str]] = {}
    for clause, panels in scaled.items():
        clauses.setdefault(panels, []).append(clause)
    sentences: list[tuple[str, Panels]] = []
    for panels, own in clauses.items():
        together = "; ".join(own)
        sentences.append((f"{together}.", panels))
    others = _with_panels([_sentences(outcome) for outcome in outcomes])
    sentences += others.items()

    of_all = tuple(range(len(outcomes)))
    common: list[str] = []
    named: list[tuple[int, str]] = []
    for sentence, panels in sentences:
        # One panel alone has its name: a file of one group is read beside those of the others.
        if panels == of_all and len(of_all) > 1:
            common.append(upper_first(sentence))
            continue
        titles = [outcomes[number].panel.title for number in panels]
        names = "; ".join(titles)
        named.append((panels[0], f"{names}: {sentence}"))
    named.sort(key=lambda note: note[0])
    return [*common, *[note for _, note in named]]


def _with_panels(said: Sequence[Sequence[str]]) -> dict[str, Panels]:
    """Each sentence once, with the numbers of the panels that say it."""
    found: dict[str, Panels] = {}
    for number, sentences in enumerate(said):
        for sentence in dict.fromkeys(sentences):
            before = found.get(sentence, ())
            found[sentence] = (*before, number)
    return found


def _sentences(outcome: PanelOutcome) -> list[str]:
    """What there is to say of a panel beside what was scaled down."""
    said = [f"Costs are shares of {outcome.baseline}'s."]
    if outcome.comparison.baseline is None:
        said.append(
            f"{outcome.baseline} is not finished, so there are no costs and no differences yet."
        )
    said += difference_notes(outcome.comparison)
    said += divergence_notes(outcome.index, outcome.comparison)
    unequal = unequal_seeds_notes(outcome.comparison)
    said += unequal
    said += average_notes(outcome.comparison)
    said += _long_shares(outcome)
    at_equal_bytes = equal_bytes(outcome.comparison)
    said += at_equal_bytes
    if at_equal_bytes and unequal:
        said.append(
            "What is said at equal bytes is of means, which are over different seeds."
        )
    # The first is the same for all panels
    choices = choice_notes(outcome.index)
    said += choices[1:]
    return said


def _long_shares(outcome: PanelOutcome) -> list[str]:
    """What the costs say of the layers: the paper prints no shares, but its costs imply them."""
    said: list[str] = []
    for setting in outcome.comparison.settings:
        printed = outcome.printed(setting)
        if printed is None or printed.factor == 1:
            continue
        if not printed.cost or not setting.relative_cost:
            continue
        ours = long_share(setting.relative_cost, printed.factor)
        theirs = long_share(printed.cost / 100, printed.factor)

        said.append(
            f"{setting.label}'s cost is that of {percent(ours, 1)} of the parameters long all the time, the "
            f"paper's that of {percent(theirs, 1)}."
        )
    return said
