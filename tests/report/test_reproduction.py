"""The paper's table beside ours: on a small real study, with figures that a paper might have printed."""

import csv
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from fedlama.base import InputError
from fedlama.paper.recipe import Row
from fedlama.paper.reproduce import Panel, Reproduction
from fedlama.report import compare
from fedlama.report.numbers.reproduction import PanelOutcome, long_share
from fedlama.report.numbers.seeds import Curve
from fedlama.report.pictures.measures import score
from fedlama.report.pictures.reproduction import draw_figures
from fedlama.report.pictures.scores import score_figure
from fedlama.report.pictures.style import PALETTE
from fedlama.report.tables.grids import Grid
from fedlama.report.tables.reproduction import reproduction_grid
from fedlama.report.tables.study import study_grid
from fedlama.report.words.formats import seeds_spanned
from fedlama.report.words.study import divergence_notes
from fedlama.study.execute import run_study
from fedlama.study.index import Choice
from fedlama.study.runs import find_runs
from fedlama.study.study_file import parse_study

STUDY = {
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "partition": {"kind": "iid", "clients": 4},
    "train": {"iterations": 24},
    "output": {"tensorboard": False},
    "study": {
        "seeds": [0],
        "baseline": "FedAvg(3)",
        "setting": [
            {"policy": {"kind": "fedavg", "base_interval": 3}},
            {"policy": {"kind": "fedlama", "base_interval": 3, "increase_factor": 2}},
            {"policy": {"kind": "fedavg", "base_interval": 6}},
        ],
    },
}
ROWS = (
    Row(interval=3, rate=0.4, accuracy=88.61, spread=0.1, cost=100.0),
    Row(interval=3, factor=2, rate=0.3, accuracy=86.6, spread=0.1),
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    study = parse_study(STUDY)
    index = run_study(study, folder, 1, lambda cell, record: None)
    panel = Panel(
        "Digits, α = 0.1", "digits", study, ROWS, ("4 clients in place of 128",)
    )
    return PanelOutcome(
        panel, compare(find_runs([folder]), baseline="FedAvg(3)"), index
    )


def made(draw=None):
    return Reproduction(
        "table4", "Table 4: digits", "cpu", (), ("it contradicts itself.",), draw
    )


def test_the_papers_numbers_stand_beside_ours(outcome):
    grid = reproduction_grid(made(), [outcome])
    by_name = {row[0]: row for row in grid.rows}
    assert by_name["FedAvg(3)"][1:4] == ["88.61 ± 0.1 %", "100.00 %", "0.4"]
    # The baseline has no difference to itself
    assert by_name["FedAvg(3)"][5:8] == ["–", "–", "100.00 %"]
    # The paper prints no cost in its appendix
    assert by_name["FedLAMA(3, 2)"][1:4] == ["86.60 ± 0.1 %", "–", "0.3"]
    assert by_name["FedAvg(6)"][1:4] == ["–", "–", "–"]  # only ours
    assert by_name["FedAvg(6)"][7] == "50.00 %"
    assert grid.parts == {0: "Digits, α = 0.1"}


def test_notes_say_what_was_scaled_down_and_where_the_paper_is_not_consistent(outcome):
    notes = "\n".join(reproduction_grid(made(), [outcome]).notes)
    assert "4 clients in place of 128" in notes
    assert "Costs are shares of FedAvg(3)'s." in notes
    assert "The paper: it contradicts itself." in notes
    assert "At equal bytes of both directions FedLAMA(3, 2)" in notes
    assert "not the paper's and are not to be read as such" in notes


def test_without_a_run_of_the_baseline_costs_and_differences_are_empty(outcome):
    others = [
        run for setting in outcome.comparison.settings[1:] for run in setting.runs
    ]
    comparison = compare(others, baseline="FedAvg(3)", baseline_may_lack=True)
    grid = reproduction_grid(made(), [replace(outcome, comparison=comparison)])
    assert grid.headings.count("cost, of FedAvg(3)") == 2
    assert [row[5:8] for row in grid.rows] == [["–", "–", "–"], ["–", "–", "–"]]
    assert (
        "FedAvg(3) is not finished, so there are no costs and no differences yet."
        in grid.notes
    )


def test_a_smoke_test_is_marked_and_its_numbers_are_not_discussed(outcome):
    grid = reproduction_grid(replace(made(), scale="smoke"), [outcome])
    assert grid.caption.startswith("Smoke test, no result: Table 4")
    assert grid.notes[0].startswith("Smoke test, no result")
    assert "The paper: it contradicts itself." in grid.notes
    assert not any("At equal bytes" in note for note in grid.notes)


def test_the_terminal_has_room_for_the_widest_line(outcome):
    grid = reproduction_grid(made(), [outcome])
    widest = [
        "FedLAMA(10, 4)",
        "88.61 ± 0.1 %",
        "100.00 %",
        "0.4",
        "36.68 ± 2.60 %",
        "−13.70 ± 3.10",
        "+5.06 ± 0.35",
        "39.94 %",
        "0.1",
        "3",
    ]
    # The baseline's cost is wider than the others'.
    baseline = ["FedAvg(6)", *"––––––", "100.00 %", "–", "3"]
    console = Console(file=io.StringIO(), width=80)
    console.print(replace(grid, rows=[widest, baseline], parts={}).terminal())
    shown = console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ")
    for number in grid.narrow:
        assert widest[number] in shown
    assert grid.headings.count("cost, of FedAvg(3)") == 2


def test_a_rate_at_the_edge_is_told_of_its_group(outcome):
    choice = Choice(rate=0.2, scores={"0.1": 0.5, "0.2": 0.6}, at_edge=True)
    index = outcome.index.model_copy(update={"choices": {"FedAvg(3)": choice}})
    notes = reproduction_grid(made(), [replace(outcome, index=index), outcome]).notes
    told = "Digits, α = 0.1: At the edge of the rates tried, so that another may be better: FedAvg(3)."
    assert notes.count(told) == 1


def titled(outcome, title, *scaled):
    return replace(outcome, panel=replace(outcome.panel, title=title, scaled=scaled))


def test_what_is_true_of_all_groups_is_said_once_and_of_none_by_name(outcome):
    quarter = titled(outcome, "25 % active", "8 in place of 32", "no warm-up", "a seed")
    everyone = titled(
        outcome, "all active", "8 in place of 128", "no warm-up", "a seed"
    )
    notes = reproduction_grid(made(), [quarter, everyone]).notes
    assert notes.count("No warm-up; a seed.") == 1
    assert notes.count("Costs are shares of FedAvg(3)'s.") == 1
    assert (
        sum("At equal bytes of both directions FedLAMA(3, 2)" in note for note in notes)
        == 1
    )
    named = [note for note in notes if "active" in note]
    assert named == [
        "25 % active: 8 in place of 32.",
        "all active: 8 in place of 128.",
    ]
    # Costs come before what is said of one group only
    assert notes.index("Costs are shares of FedAvg(3)'s.") < notes.index(named[0])


def test_what_is_true_of_some_groups_is_said_once_and_names_them(outcome):
    groups = [
        titled(outcome, "first", "α = 0.5 in place of 0.1"),
        titled(outcome, "second", "another model"),
        titled(outcome, "third", "α = 0.5 in place of 0.1"),
    ]
    notes = reproduction_grid(made(), groups).notes
    assert "first; third: α = 0.5 in place of 0.1." in notes
    assert "second: another model." in notes
    assert sum("α = 0.5" in note for note in notes) == 1


def test_seeds_that_are_not_finished_are_told(outcome):
    # Of the recipe's two seeds each setting has one; at the second FedAvg(6) diverged, so nothing of it is to come.
    settings = []
    for setting in outcome.panel.study.settings:
        settings.append(replace(setting, seeds=(0, 1)))
    study = replace(outcome.panel.study, settings=tuple(settings))
    labels = {**outcome.index.labels, "fedavg-6/seed1": "FedAvg(6)"}
    index = outcome.index.model_copy(
        update={"labels": labels, "diverged": {"fedavg-6/seed1": REASON}}
    )
    group = replace(outcome, panel=replace(outcome.panel, study=study), index=index)
    told = "Finished so far: 1 of 2 seeds of FedAvg(3) and FedLAMA(3, 2)."
    assert told in reproduction_grid(made(), [group]).notes
    assert not any(
        "Finished so far" in note for note in reproduction_grid(made(), [outcome]).notes
    )

    # One that has no run at all
    lacking = replace(outcome.comparison, settings=outcome.comparison.settings[:2])
    notes = reproduction_grid(made(), [replace(outcome, comparison=lacking)]).notes
    assert "Finished so far: 0 of 1 seeds of FedAvg(6)." in notes


def test_at_equal_bytes_only_shared_seeds_count(outcome):
    baseline, adapts, slow = outcome.comparison.settings
    first = baseline.runs[0]
    second = replace(first, config=first.config.model_copy(update={"seed": 1}))
    (value,) = baseline.score.values
    score = replace(baseline.score, mean=value / 2, values=(value, 0.0))
    twice = replace(baseline, runs=(first, second), score=score)
    comparison = replace(outcome.comparison, settings=(twice, adapts, slow))
    comparison = replace(comparison, baseline=None)

    once = reproduction_grid(made(), [outcome])
    both = reproduction_grid(made(), [replace(outcome, comparison=comparison)])
    place = once.headings.index("at equal bytes")
    column = [row[place] for row in once.rows]
    assert column[0] == column[2] == "–"
    assert column[1] not in ("–", "")
    assert [row[place] for row in both.rows] == column
    record = once.records[1]
    assert record["equal_bytes_seeds"] == "0"
    assert record["equal_bytes_between"] == "FedAvg(6) and FedAvg(3)"
    assert record["equal_bytes_error"] is None
    assert any("Means are over different seeds" in note for note in both.notes)


REASON = (
    "the loss of client 23 was not finite in round 18 (from step 171): the training diverged, so lower "
    "local.learning_rate"
)


def test_a_run_that_diverged_is_named_with_its_seed_and_round(outcome):
    labels = {f"fedlama-3-2/seed{seed}": "FedLAMA(3, 2)" for seed in (0, 1, 2)}
    index = outcome.index.model_copy(
        update={
            "labels": {**outcome.index.labels, **labels},
            "diverged": {"fedlama-3-2/seed1": REASON},
        }
    )
    one = (
        "FedLAMA(3, 2) diverged at seed 1 (the loss of client 23 was not finite in round 18); "
        "that run is left out of its means."
    )
    group = replace(outcome, index=index)
    grid = reproduction_grid(made(), [group])
    assert one in grid.notes
    assert one in grid.markdown()
    assert one in grid.latex()
    assert one in study_grid(outcome.comparison, index).notes

    both = index.model_copy(
        update={
            "diverged": {
                "fedlama-3-2/seed1": REASON,
                "fedlama-3-2/seed2": "the weights of client 4 were not finite in round 2",
            }
        }
    )
    assert divergence_notes(both, outcome.comparison) == [
        "FedLAMA(3, 2) diverged at seed 1 (the loss of client 23 was not finite in round 18) and seed 2 "
        "(the weights of client 4 were not finite in round 2); those runs are left out of its means."
    ]


def test_a_setting_of_which_nothing_is_finished_has_no_means_to_be_left_out_of(outcome):
    index = outcome.index.model_copy(
        update={
            "labels": {"fedavg-9/seed0": "FedAvg(9)"},
            "diverged": {"fedavg-9/seed0": REASON},
        }
    )
    assert divergence_notes(index, outcome.comparison) == [
        "FedAvg(9) diverged at seed 0 (the loss of client 23 was not finite in round 18)."
    ]


def test_costs_are_told_as_the_share_that_is_long(outcome):
    # 0.6048 saved, of at most 3/4
    assert long_share(0.3952, 4) == pytest.approx(0.8064)
    rows = (
        ROWS[0],
        Row(interval=3, factor=2, rate=0.3, accuracy=86.6, spread=0.1, cost=60.0),
    )
    cost = next(one.relative_cost for one in outcome.comparison.settings if one.adapts)
    notes = reproduction_grid(
        made(), [replace(outcome, panel=replace(outcome.panel, rows=rows))]
    ).notes
    ours = f"{200 * (1 - cost):.1f} % of the parameters long all the time, the paper's that of 80.0 %."
    assert f"FedLAMA(3, 2)'s cost is that of {ours}" in [
        note.replace("\N{NO-BREAK SPACE}", " ") for note in notes
    ]
    without_cost = reproduction_grid(made(), [outcome]).notes
    assert not any("long all the time" in note for note in without_cost)


def test_numbers_in_csv_are_not_rounded(outcome):
    rows = list(csv.DictReader(io.StringIO(reproduction_grid(made(), [outcome]).csv())))
    by_name = {row["setting"]: row for row in rows}
    assert float(by_name["FedAvg(3)"]["paper_accuracy"]) == pytest.approx(0.8861)
    assert by_name["FedAvg(6)"]["paper_accuracy"] == ""
    score = outcome.comparison.settings[0].score
    assert score is not None
    assert (
        float(by_name[outcome.comparison.settings[0].label]["accuracy"]) == score.mean
    )


@pytest.mark.parametrize(
    ("draw", "title"),
    [
        ("crossing", "δ and 1 − λ of FedLAMA(3, 2) after step 24"),
        ("aggregations", "Aggregations of each layer (the 3 kernels of 6"),
        ("sizes", "Bytes sent for each layer, as coded (the 3 kernels"),
        ("curves", "Accuracy over steps"),
        (None, "Accuracy over all bytes of the run"),
    ],
)
def test_figures_say_by_themselves_what_they_show(outcome, draw, title, tmp_path):
    (path,) = draw_figures(made(draw), [outcome], tmp_path).paths
    text = path.read_text()
    assert text.lstrip().startswith("<?xml")
    settings = [] if draw == "crossing" else ["FedAvg(3)", "FedLAMA(3, 2)", "FedAvg(6)"]
    # With the length of the runs, which the group's title does not tell
    for said in (title, f"{outcome.panel.title}, seed 0, 24 steps", *settings):
        assert said in text
    width, height = (
        float(re.search(rf'{name}="([0-9.]+)pt"', text)[1])
        for name in ("width", "height")
    )
    assert 200 < height < 2 * width


def with_seed(outcome, seed):
    """The outcome with a second run of each setting, which reached and sent the same."""
    runs = []
    for setting in outcome.comparison.settings:
        (run,) = setting.runs
        config = run.config.model_copy(update={"seed": seed})
        runs += [run, replace(run, config=config)]
    return replace(outcome, comparison=compare(runs, baseline="FedAvg(3)"))


@pytest.mark.parametrize("draw", ["aggregations", "sizes", "curves", None])
def test_a_title_names_the_seeds(outcome, draw, tmp_path):
    (path,) = draw_figures(made(draw), [with_seed(outcome, 2)], tmp_path).paths
    assert f"{outcome.panel.title}, seeds 0 and 2, 24 steps" in path.read_text()


def test_a_crossing_is_of_one_seed(outcome, tmp_path):
    drawn = draw_figures(made("crossing"), [with_seed(outcome, 2)], tmp_path)
    assert f"{outcome.panel.title}, seed 0, 24 steps" in drawn.paths[0].read_text()


def test_seeds_without_gaps_are_a_span():
    assert seeds_spanned([2]) == "seed 2"
    assert seeds_spanned([1, 0]) == "seeds 0 and 1"
    assert seeds_spanned([2, 0, 1]) == "seeds 0 to 2"
    assert seeds_spanned([0, 1, 3]) == "seeds 0, 1 and 3"


@pytest.mark.parametrize("draw", ["aggregations", "curves", None])
def test_a_setting_looks_in_the_legend_as_in_the_drawing(outcome, draw, tmp_path):
    (path,) = draw_figures(made(draw), [outcome], tmp_path).paths
    legend = path.read_text().split('id="legend_1"')[1]
    shapes = {
        "bars": legend.count('id="patch_'),
        "markers": legend.count("<use "),
        "diamonds": legend.count("stroke-linejoin: miter"),
    }
    lines = legend.count("stroke-linecap: square")
    if draw == "aggregations":
        assert (shapes["bars"], shapes["markers"], lines) == (3, 0, 0)
    elif draw == "curves":
        assert (shapes["markers"], lines) == (0, 3)
    else:
        # Two dots and a diamond
        assert (shapes["markers"], shapes["diamonds"], lines) == (3, 1, 0)


def test_settings_that_are_not_finished_do_not_change_the_colours_of_others(
    outcome, tmp_path
):
    # Without FedAvg(3), FedAvg(6) would be the one with the smallest interval.
    runs = list(outcome.comparison.settings[2].runs)
    comparison = compare(runs, baseline="FedAvg(3)", baseline_may_lack=True)
    alone = replace(outcome, comparison=comparison)
    (path,) = draw_figures(made("curves"), [alone], tmp_path).paths
    text = path.read_text()
    assert PALETTE[4] in text
    assert PALETTE[0] not in text


def test_curves_of_a_figure_are_not_cut_off(outcome, tmp_path):
    # From 10 to 90 %, of which the second half is a small part
    (first, *others) = outcome.comparison.settings
    curve = Curve(
        steps=[6, 12, 18, 24],
        uplink_bytes=[1.0, 2.0, 3.0, 4.0],
        mean=[0.1, 0.88, 0.89, 0.9],
        low=[0.1, 0.88, 0.89, 0.9],
        high=[0.1, 0.88, 0.89, 0.9],
    )
    settings = [replace(one, curve=curve) for one in (first, *others)]
    comparison = replace(outcome.comparison, settings=tuple(settings))
    measure = score(comparison)
    (cut,) = score_figure(comparison, measure, "steps").axes
    assert cut.get_ylim()[0] > 0.8
    (whole,) = score_figure(comparison, measure, "steps", whole=True).axes
    assert whole.get_ylim()[0] < 0.1
    outcome = replace(outcome, comparison=comparison)
    (path,) = draw_figures(made("curves"), [outcome], tmp_path).paths
    assert ">20 %<" in path.read_text()


def without_records(outcome, *labels):
    """The outcome, as it is read where the records of these settings' rounds were not kept."""
    runs = []
    for setting in outcome.comparison.settings:
        for run in setting.runs:
            if setting.label in labels:
                runs.append(replace(run, records=[]))
            else:
                runs.append(run)
    return replace(outcome, comparison=compare(runs, baseline="FedAvg(3)"))


@pytest.mark.parametrize(
    ("draw", "named"),
    [
        ("crossing", "FedLAMA(3, 2)"),
        ("curves", "FedAvg(3), FedLAMA(3, 2) and FedAvg(6)"),
    ],
)
def test_figures_that_need_records_say_that_they_are_not_there(
    outcome, draw, named, tmp_path
):
    bare = without_records(outcome, "FedAvg(3)", "FedLAMA(3, 2)", "FedAvg(6)")
    drawn = draw_figures(made(draw), [bare, outcome], tmp_path)
    assert [path.name for path in drawn.paths] == ["table4b.svg"]
    assert drawn.notes == (
        f"table4a: not drawn, the records of rounds (rounds.jsonl) of {named} are not there",
    )
    for one in ("aggregations", "sizes", None):
        assert draw_figures(made(one), [bare], tmp_path).notes == ()


def test_curves_that_are_missing_in_a_figure_are_named(outcome, tmp_path):
    some = without_records(outcome, "FedAvg(6)")
    drawn = draw_figures(made("curves"), [some], tmp_path)
    assert len(drawn.paths) == 1
    assert drawn.notes == (
        "table4: drawn without some runs, the records of rounds (rounds.jsonl) of FedAvg(6) are not there",
    )
    assert draw_figures(made("crossing"), [some], tmp_path).notes == ()


def test_a_picture_with_all_runs_is_kept_where_some_have_no_records_any_more(
    outcome, tmp_path
):
    """As published results have them: the picture, and summaries without the records it was drawn from."""
    (whole,) = draw_figures(made("curves"), [outcome], tmp_path).paths
    before = whole.read_bytes()
    some = without_records(outcome, "FedAvg(6)")
    drawn = draw_figures(made("curves"), [some], tmp_path)
    assert drawn.paths == (whole,)
    assert drawn.notes == (
        "table4: kept as it is, the records of rounds (rounds.jsonl) of FedAvg(6) are not there; delete the picture to "
        "draw it from the rest",
    )
    assert whole.read_bytes() == before
    # It needs no records of FedAvg
    assert not draw_figures(made("crossing"), [some], tmp_path).notes
    assert whole.read_bytes() != before


def test_pictures_of_crossings_are_kept_together(outcome, tmp_path):
    """Where one setting of two has its records left, its picture would have another name."""
    runs = [run for setting in outcome.comparison.settings for run in setting.runs]
    (fedlama,) = outcome.comparison.settings[1].runs
    runs.append(replace(fedlama, setting="another"))
    both = replace(outcome, comparison=compare(runs, baseline="FedAvg(3)"))
    whole = draw_figures(made("crossing"), [both], tmp_path).paths
    assert [path.name for path in whole] == ["table4-1.svg", "table4-2.svg"]
    some = without_records(both, "another")
    drawn = draw_figures(made("crossing"), [some], tmp_path)
    assert drawn.paths == whole
    assert len(drawn.notes) == 1
    assert not (tmp_path / "table4.svg").exists()


def test_a_curve_is_over_the_seeds_whose_records_are_kept(outcome, tmp_path):
    baseline, *others = outcome.comparison.settings
    (recorded,) = baseline.runs
    config = recorded.config.model_copy(update={"seed": 2})
    bare = replace(recorded, config=config, records=[])
    nothing = replace(baseline.curve, steps=[], mean=[], low=[], high=[])
    twice = replace(baseline, runs=(recorded, bare), curve=nothing)
    comparison = replace(outcome.comparison, settings=(twice, *others))
    some = replace(outcome, comparison=comparison)
    drawn = draw_figures(made("curves"), [some], tmp_path)
    assert drawn.notes == (
        "table4: drawn without some runs, the records of rounds (rounds.jsonl) of FedAvg(3) at seed 2 are not there",
    )
    (again,) = draw_figures(made("curves"), [outcome], tmp_path / "again").paths
    assert drawn.paths[0].read_text() == again.read_text()


def test_a_setting_with_fewer_seeds_says_so_in_the_legend(outcome, tmp_path):
    baseline, *others = outcome.comparison.settings
    (first,) = baseline.runs
    second = replace(first, config=first.config.model_copy(update={"seed": 2}))
    score = replace(baseline.score, values=(*baseline.score.values, 0.5))
    twice = replace(baseline, runs=(first, second), score=score)
    comparison = replace(outcome.comparison, settings=(twice, *others))
    (path,) = draw_figures(
        made(None), [replace(outcome, comparison=comparison)], tmp_path
    ).paths
    text = path.read_text()
    assert "FedAvg(6) (seed 0)" in text
    assert "FedLAMA(3, 2) (seed 0)" in text
    assert "FedAvg(3) (" not in text


def test_a_long_title_is_not_cut_off(outcome, tmp_path):
    title = "CIFAR-100 with WRN-28-10 (here WRN-16-2, 25,000 of the 50,000 training samples), 100 % active, IID"
    panel = replace(outcome.panel, title=title)
    (path,) = draw_figures(
        made("crossing"), [replace(outcome, panel=panel)], tmp_path
    ).paths
    text = path.read_text()
    lines = re.findall(r"font-size: 11px[^>]*translate\(([0-9.]+) [^>]*>([^<]*)<", text)
    said = " ".join(line for _, line in lines)
    assert said.endswith(f"after step 24 {title}, seed 0, 24 steps")
    # All from the figure's left edge, whose width they are broken to
    assert all(float(place) < 10 for place, _ in lines)


def test_figures_of_several_groups_have_letters(outcome, tmp_path):
    both = draw_figures(made("curves"), [outcome, outcome], tmp_path)
    assert [path.name for path in both.paths] == ["table4a.svg", "table4b.svg"]
    many = draw_figures(made(None), [outcome] * 9, tmp_path)
    assert many.paths[-1].name == "table4i.svg"


def test_text_is_text_in_every_form():
    grid = Grid(
        ["a|b", "%"],
        [["x_1 & <b>", "1 ± 2 %"]],
        ["50 % of $"],
        [{"a": "x,y"}],
        {0: "*part*"},
    )
    assert r"x\_1 &amp; &lt;b&gt;" in grid.markdown()
    assert r"*\*part\**" in grid.markdown()
    assert r"x\_1 \& <b> & 1 $\pm$ 2 \%" in grid.latex()
    assert '"x,y"' in grid.csv()


def test_a_folder_that_several_studies_share_keeps_all_their_runs(tmp_path):
    run_study(parse_study(STUDY), tmp_path, 1, lambda cell, record: None, shared=True)
    fewer = {
        **STUDY,
        "participation": {"window": 6},
        "study": {**STUDY["study"], "setting": STUDY["study"]["setting"][:1]},
    }
    own = run_study(
        parse_study(fewer), tmp_path, 1, lambda cell, record: None, shared=True
    )
    assert list(own.labels) == ["fedavg-3/seed0"]
    assert [run.label for run in find_runs([tmp_path])] == [
        "FedAvg(3)",
        "FedLAMA(3, 2)",
        "FedAvg(6)",
    ]


def test_a_published_study_without_records_is_finished(tmp_path):
    study = parse_study(STUDY)
    first = run_study(study, tmp_path, 1, lambda *_: None)
    for records in tmp_path.rglob("rounds.jsonl"):
        records.unlink()
    assert run_study(study, tmp_path, 1, lambda *_: None) == first


def test_a_setting_that_diverges_everywhere_stops_nothing(tmp_path):
    settings = [
        *STUDY["study"]["setting"][:1],
        {**STUDY["study"]["setting"][1], "learning_rates": [1e30]},
    ]
    study = parse_study({**STUDY, "study": {**STUDY["study"], "setting": settings}})
    index = run_study(study, tmp_path, 1, lambda cell, record: None)
    assert index.choices["FedLAMA(3, 2)"].rate is None
    grid = study_grid(compare(find_runs([tmp_path])), index)
    assert [row[:2] for row in grid.rows][1] == ["FedLAMA(3, 2)", "diverged"]
    assert any(
        "diverged at every learning rate that was tried (1e+30)" in note
        for note in grid.notes
    )


def test_a_damaged_index_is_written_anew_and_a_damaged_summary_is_told(tmp_path):
    run_study(parse_study(STUDY), tmp_path, 1, lambda cell, record: None)
    (tmp_path / "study.json").write_text("garbage")
    run_study(parse_study(STUDY), tmp_path, 1, lambda cell, record: None)
    assert len(find_runs([tmp_path])) == 3


def test_a_study_that_cannot_start_keeps_the_index_of_what_is_there(
    tmp_path, monkeypatch
):
    run_study(parse_study(STUDY), tmp_path, 1, lambda cell, record: None)
    before = (tmp_path / "study.json").read_bytes()

    def gone(config):
        raise InputError("the data is not there")

    monkeypatch.setattr("fedlama.study.execute.resolve", gone)
    with pytest.raises(InputError, match="not there"):
        run_study(parse_study(STUDY), tmp_path, 1, lambda cell, record: None)
    assert (tmp_path / "study.json").read_bytes() == before
