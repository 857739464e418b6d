"""The packaged recipes: every table and figure expands into configurations of the paper, or says what differs."""

import io

import pytest

from fedlama.base import InputError
from fedlama.paper.reproduce import FIGURES, TABLES, reproduction, table_recipe
from fedlama.study.progress import StudyDisplay, planned


@pytest.mark.parametrize("name", [*TABLES, *FIGURES])
@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_every_recipe_expands(name, scale):
    made = reproduction(name, scale)
    for panel in made.panels:
        assert panel.study.options.baseline == panel.rows[0].name
        names = [setting.name for setting in panel.study.settings]
        assert names[: len(panel.rows)] == [row.name for row in panel.rows]
        windows = {setting.config.participation.window for setting in panel.study.settings}
        assert len(windows) == 1  # the same clients for every setting
        assert all(
            windows.pop() % setting.config.policy.build().longest_cycle == 0 for setting in panel.study.settings[:1]
        )


@pytest.mark.parametrize("name", TABLES)
def test_the_papers_scale_is_the_papers(name):
    made, recipe = reproduction(name, "paper"), table_recipe(name)
    for panel, group in zip(made.panels, recipe.group, strict=True):
        for setting, row in zip(panel.study.settings, group.rows, strict=True):
            config = setting.config
            assert config.partition.clients == 128
            assert config.local.batch_size == 32
            assert config.local.learning_rate == row.rate
            assert config.local.warmup_steps in (120, 180)  # 10 epochs of 12 or 18 steps
            assert config.train.iterations in {"femnist": (2000,)}.get(recipe.data, (3600, 3000, 6000))
            assert config.participation.active == group.active
            assert setting.seeds == (0, 1, 2)
            assert not setting.learning_rates
            if row.factor > 1:  # FedAvg has no intervals to adjust
                assert config.policy.warmup_rounds == 8
        assert (
            config.model.name
            == {"cifar10": "resnet20", "cifar100": "wide_resnet28_10", "femnist": "leaf_cnn"}[recipe.data]
        )


def test_rounds_are_those_that_the_printed_costs_need():
    # paper/cost_decoding: 600 rounds of 6 steps for Table 1, 500 for Table 2, 200 of 10 for FEMNIST, 1,000 non-IID
    rounds = {name: table_recipe(name).iterations // table_recipe(name).group[0].rows[0].interval for name in TABLES}
    assert (rounds["table1"], rounds["table2"], rounds["table3"], rounds["table4"]) == (600, 500, 200, 1000)


def test_what_was_scaled_down_is_said():
    panel = reproduction("table4", "cpu").panels[0]
    said = "; ".join(panel.scaled)
    assert "4 of 16 clients in place of 32 of 128" in said
    assert "α = 0.5 in place of 0.1" in said
    assert "3 seeds" in said
    assert "the model wide_resnet in place of wide_resnet28_10" in "; ".join(
        reproduction("table2", "cpu").panels[0].scaled
    )


def test_the_same_runs_serve_tables_and_figures():
    folders = {name: {panel.folder for panel in reproduction(name, "cpu").panels} for name in ("table1", "figure4")}
    assert folders["table1"] <= folders["figure4"]


@pytest.mark.parametrize(("name", "hint"), [("tabel4", "did you mean table4"), ("table13", "table1 … table12")])
def test_what_the_paper_does_not_have(name, hint):
    with pytest.raises(InputError, match=hint):
        reproduction(name, "cpu")


def test_an_unknown_scale():
    with pytest.raises(InputError, match="must be one of cpu, paper"):
        reproduction("table1", "gpu")


def test_known_inconsistencies_of_the_paper_are_flagged():
    remarks = " ".join(reproduction("table4", "cpu").remarks)
    assert "84.02" in remarks
    assert "τ' = 10" in " ".join(reproduction("table12", "cpu").remarks)


def test_one_group_of_a_table():
    made = reproduction("table4", "cpu", group=2)
    assert [panel.title for panel in made.panels] == [reproduction("table4", "cpu").panels[1].title]
    assert made.file_name == "table4-group2"
    with pytest.raises(InputError, match="table4 has 4 groups"):
        reproduction("table4", "cpu", group=5)


def test_what_is_printed_as_another_alpha_says_so():
    assert reproduction("table4", "cpu").panels[0].title.endswith("α = 0.1 (here 0.5)")
    assert reproduction("table4", "paper").panels[0].title.endswith("α = 0.1")
    assert reproduction("table1", "cpu").panels[0].title.endswith("100 % active, IID")
    assert reproduction("table2", "cpu").panels[0].title == (
        "CIFAR-100 with WRN-28-10 (here wide_resnet), 100 % active, IID"
    )
    assert reproduction("table3", "paper").panels[0].title.endswith("25 % active")  # by writer
    twins = reproduction("table7", "cpu").panels[7:9]
    assert twins[0].folder == twins[1].folder
    assert any("the runs of the group above or below" in text for text in twins[1].scaled)


def test_data_that_stand_in_are_named_in_the_title(monkeypatch):
    monkeypatch.setattr("fedlama.paper.reproduce._source", lambda common: "mnist_by_writer")
    title = reproduction("table3", "cpu").panels[0].title
    assert title == "FEMNIST with the LEAF CNN (here mnist_by_writer), 25 % active"


def test_progress_counts_every_run_once(tmp_path):
    made = reproduction("table7", "cpu")
    cells = planned([(panel.study, tmp_path / panel.folder) for panel in made.panels])
    display = StudyDisplay(len(cells), sum(cell.config.train.iterations for cell in cells), None, io.StringIO())
    for cell in cells:
        display(cell, "done")
    assert sum(display._done.values()) == display.steps


def test_progress_says_of_a_run_that_diverged_that_it_did(tmp_path):
    cell = planned([(panel.study, tmp_path) for panel in reproduction("table1", "cpu").panels])[0]
    lines = io.StringIO()
    StudyDisplay(1, cell.config.train.iterations, None, lines)(cell, "diverged")
    assert lines.getvalue().startswith(f"1/1 runs · {cell.label}: diverged · ")
