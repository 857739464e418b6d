"""The packaged recipes: every table and figure expands into configurations of the paper, or says what differs."""

import io
import shutil
from pathlib import Path

import pytest
import torch

from fedlama.base import InputError
from fedlama.cli.panels import print_scaled
from fedlama.cli.reproduce import reproduce
from fedlama.paper.costs import planned_run
from fedlama.paper.recipe import FIGURES, TABLES, table_recipe
from fedlama.paper.reproduce import checked_precision, frontier_study, reproduction
from fedlama.paper.scaling import Changes
from fedlama.study.execute import run_study
from fedlama.study.plan import counted, planned
from fedlama.study.progress import StudyDisplay


@pytest.mark.parametrize("name", [*TABLES, *FIGURES])
@pytest.mark.parametrize("scale", ["smoke", "cpu", "paper"])
def test_every_recipe_expands(name, scale):
    made = reproduction(name, scale)
    for panel in made.panels:
        assert panel.study.options.baseline == panel.rows[0].name
        names = [setting.name for setting in panel.study.settings]
        assert names[: len(panel.rows)] == [row.name for row in panel.rows]
        windows = {
            setting.config.participation.window for setting in panel.study.settings
        }
        assert len(windows) == 1  # the same clients for every setting
        assert all(
            windows.pop() % setting.config.policy.build().longest_cycle == 0
            for setting in panel.study.settings[:1]
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
            # 10 epochs of 12 or 18 steps
            assert config.local.warmup_steps in (120, 180)
            assert config.train.iterations in {"femnist": (2000,)}.get(
                recipe.data, (3600, 3000, 6000)
            )
            assert config.participation.active == group.active
            assert setting.seeds == (0, 1, 2)
            assert not setting.learning_rates
            if row.factor > 1:  # FedAvg has no intervals to adjust
                assert config.policy.warmup_rounds == 8
        assert (
            config.model.name
            == {
                "cifar10": "resnet20",
                "cifar100": "wide_resnet28_10",
                "femnist": "leaf_cnn",
            }[recipe.data]
        )


def test_rounds_are_those_that_the_printed_costs_need():
    # paper/cost_decoding: 600 rounds of 6 steps for Table 1, 500 for Table 2, 200 of 10 for FEMNIST, 1,000 non-IID
    rounds = {
        name: table_recipe(name).iterations
        // table_recipe(name).group[0].rows[0].interval
        for name in TABLES
    }
    assert (rounds["table1"], rounds["table2"], rounds["table3"], rounds["table4"]) == (
        600,
        500,
        200,
        1000,
    )


def test_what_was_scaled_down_is_said():
    said = "; ".join(reproduction("table4", "cpu").panels[0].scaled)
    assert "8 of 128 clients train at a time, in place of 32 of 128" in said
    assert "3,000 steps in place of 6,000" in said
    assert "learning rate 0.1 for every setting, from short pilots of FedAvg(6)" in said
    assert "α = 0.5 in place of 0.1" in said
    assert "3 seeds" in said
    assert "in place of all 128" in "; ".join(
        reproduction("table1", "cpu").panels[0].scaled
    )
    assert "not from pilots" in "; ".join(
        reproduction("table2", "cpu").panels[0].scaled
    )
    assert "the model WRN-16-2 in place of WRN-28-10" in "; ".join(
        reproduction("table2", "cpu").panels[0].scaled
    )


def test_what_the_paper_does_not_say_is_said():
    said = "; ".join(reproduction("table4", "cpu").panels[0].scaled)
    assert "the rate is divided by 10 after 1,500 and 2,250 steps" in said
    optimizer = (
        "momentum 0.9 and weight decay 0.0002 on kernels, as in the released code"
    )
    assert optimizer in said
    assert "the cohort changes every 24 steps, and momentum begins at zero then" in said
    assert "BatchNorm's running statistics are averaged as weights are" in said
    writers = "; ".join(reproduction("table3", "cpu").panels[0].scaled)
    assert (
        "no momentum and no weight decay; the cohort changes every 40 steps" in writers
    )
    assert "BatchNorm" not in writers
    flat = reproduction("table4", "cpu", 1, Changes(decay=False)).panels[0].scaled
    assert "the rate is not divided during the run" in flat

    # At the paper's own scale, too: where all are active, everyone stays
    (everyone,) = reproduction("table1", "paper").panels
    assert optimizer in everyone.scaled
    assert not any("changes every" in clause for clause in everyone.scaled)


def test_writers_train_in_place_of_clients(monkeypatch):
    monkeypatch.setattr("fedlama.paper.recipe.present", frozenset)
    quarter, half, everyone = reproduction("table3", "cpu").panels
    start = "8 writers train at a time, in place of"
    assert quarter.scaled[0] == f"{start} 32 of 128 clients"
    assert half.scaled[0] == f"{start} 64 of 128 clients"
    assert everyone.scaled[0] == f"{start} all 128 clients"


class Written:
    x_train = range(5)
    clients = torch.tensor([0, 1, 1, 3, 0])


def test_writers_are_counted_where_they_are_known(monkeypatch):
    there = {"unipen62_by_writer"}
    monkeypatch.setattr("fedlama.paper.recipe.present", lambda: there)
    monkeypatch.setattr("fedlama.paper.sources.load_data", lambda name: Written)
    panel = reproduction("table3", "cpu").panels[0]
    assert panel.title.endswith(
        "(here unipen62_by_writer), 25 % active (here 8 of 3 writers)"
    )
    assert panel.scaled[0].startswith("8 of 3 writers train at a time")


def no_data(name):
    raise AssertionError(f"{name} is not needed")


KEPT = Path(__file__).parents[2] / "results"


def test_of_kept_runs_the_data_is_not_needed(monkeypatch, tmp_path):
    monkeypatch.setattr("fedlama.paper.recipe.present", frozenset)
    monkeypatch.setattr("fedlama.paper.sources.load_data", no_data)
    writers = reproduction("table3", "cpu", 1, kept=KEPT / "cpu").panels[0]
    assert writers.title.endswith(
        "(here unipen62_by_writer), 25 % active (here 8 of 317 writers)"
    )
    changes = Changes(iterations=960, precision="bfloat16")
    kept = KEPT / changes.folder("cpu")
    half = reproduction("table2", "cpu", None, changes, kept=kept).panels[0]
    assert "25,000 of the 50,000 training samples" in half.title

    # Nothing of it is loaded to show what is finished
    copy = tmp_path / half.folder
    shutil.copytree(kept / half.folder, copy)
    before = (copy / "study.json").read_bytes()
    index = run_study(half.study, copy, 1, lambda *_: None, shared=True, train=False)
    assert index.samples == {"cifar100": 25_000}
    assert (copy / "study.json").read_bytes() == before

    nothing = reproduction("table3", "cpu", 1, kept=tmp_path).panels[0]
    assert nothing.study.settings[0].config.data.name == "femnist"


def test_kept_runs_of_another_configuration_are_refused_without_the_data(tmp_path):
    changes = Changes(iterations=960, precision="bfloat16")
    kept = KEPT / changes.folder("cpu")
    half = reproduction("table2", "cpu", None, changes, kept=kept).panels[0]
    copy = tmp_path / half.folder
    shutil.copytree(kept / half.folder, copy)
    other = Changes(iterations=1200, precision="bfloat16")
    longer = reproduction("table2", "cpu", None, other, kept=tmp_path).panels[0]
    with pytest.raises(InputError, match=r"another configuration .*train\.iterations"):
        run_study(longer.study, copy, 1, lambda *_: None, shared=True, train=False)


def test_a_plan_needs_no_data_and_says_what_was_scaled(monkeypatch, capsys):
    monkeypatch.setattr("fedlama.paper.recipe.present", frozenset)
    monkeypatch.setattr("fedlama.paper.costs.present", frozenset)
    made = reproduction("table2", "cpu")
    studies = [(panel.study, Path(panel.folder)) for panel in made.panels]
    plan, _ = counted(studies, 1, stand_in=planned_run)
    # Five settings of 3,000 steps by eight clients
    assert plan.client_steps == 5 * 3000 * 8

    table4 = reproduction("table4", "cpu")
    print_scaled([table4, table4])
    said = capsys.readouterr().out.splitlines()
    # What is true of all groups once, and a line for each of them
    assert len(said) == 1 + len(table4.panels)
    assert said[0].startswith(f"* {table4.title}: 3,000 steps in place of 6,000")
    assert said[1].startswith(f"* {table4.panels[0].title}: 8 of 128 clients train")
    assert sum("no warm-up" in line for line in said) == 1


def test_what_is_the_papers_is_not_said_to_differ():
    # 2,000 steps, as in the paper
    for panel in reproduction("table3", "cpu").panels:
        assert not any("steps in place" in clause for clause in panel.scaled)
    as_long = reproduction("table4", "cpu", 1, Changes(iterations=6000))
    assert not any("steps in place" in clause for clause in as_long.panels[0].scaled)
    # ResNet20, as in the paper
    assert not any("the model" in clause for clause in as_long.panels[0].scaled)


@pytest.mark.parametrize("name", TABLES)
def test_the_small_scale_keeps_the_shards_and_scales_the_cohort(name):
    data = table_recipe(name).data
    for panel in reproduction(name, "cpu").panels:
        for setting in panel.study.settings:
            config = setting.config
            # None: every writer
            assert config.partition.clients == (None if data == "femnist" else 128)
            assert config.participation.active == 8
            assert config.train.iterations == (2000 if data == "femnist" else 3000)
            assert config.local.batch_size == 32
            assert config.local.weight_decay == (0.0 if data == "femnist" else 2e-4)
            assert not setting.learning_rates


# half and three quarters of the paper's 6,000 and 3,600 steps, and of 3,000
@pytest.mark.parametrize(
    ("name", "scale", "steps"),
    [
        ("table4", "paper", [3000, 4500]),
        ("table1", "paper", [1800, 2700]),
        ("table4", "cpu", [1500, 2250]),
    ],
)
def test_the_rate_is_divided_at_half_and_three_quarters(name, scale, steps):
    made = reproduction(name, scale)
    configs = [
        setting.config for panel in made.panels for setting in panel.study.settings
    ]
    assert all(config.local.decay_steps == steps for config in configs)
    assert all(config.local.decay_factor == 0.1 for config in configs)
    assert any("at half and at three quarters" in remark for remark in made.remarks)


def test_what_the_user_changes():
    made = reproduction("table4", "cpu", 1, Changes(iterations=960))
    config = made.panels[0].study.settings[0].config
    assert (config.train.iterations, config.local.decay_steps) == (960, [480, 720])
    assert "960 steps in place of 6,000" in made.panels[0].scaled
    flat = reproduction("table4", "cpu", 1, Changes(decay=False))
    assert flat.panels[0].study.settings[0].config.local.decay_steps == []
    assert not any("three quarters" in remark for remark in flat.remarks)


def test_changed_runs_are_kept_apart():
    assert Changes().folder("cpu") == "cpu"
    assert (
        Changes(iterations=960, decay=False, pilots=True).folder("cpu")
        == "cpu-960-steps-no-decay-pilots"
    )


@pytest.mark.parametrize(
    ("options", "below"),
    [
        ({}, "cpu"),
        (
            {"iterations": 960, "precision": "bfloat16"},
            "cpu-960-steps-bfloat16",
        ),
        ({"scale": "paper"}, "paper"),
    ],
)
def test_unfinished_runs_of_other_recipes_are_kept_apart(
    options, below, monkeypatch, tmp_path
):
    """As their folders are: runs of one name are others at another scale or length, or in another precision."""
    seen = []
    monkeypatch.setattr(
        "fedlama.cli.reproduce.train_and_show",
        lambda every, folder, workers, sitting, **rest: seen.append(sitting),
    )
    monkeypatch.setattr("fedlama.paper.recipe.present", lambda: [])
    words = {"settings": None, "seeds": None, "group": 1, "precision": "float32"}
    reproduce("table4", checkpoints=tmp_path, **{"scale": "cpu", **words, **options})
    assert seen[0].checkpoints == tmp_path / below
    assert seen[0].below("panel").keeps_in == tmp_path


@pytest.mark.parametrize(
    ("scale", "below"), [("cpu", "frontier"), ("smoke", "frontier-smoke")]
)
def test_unfinished_runs_of_the_frontier_are_kept_apart_as_well(
    scale, below, monkeypatch, tmp_path
):
    seen = []
    monkeypatch.setattr(
        "fedlama.cli.frontier.train_and_draw",
        lambda study, folder, workers, sitting, **rest: seen.append(sitting),
    )
    reproduce("frontier", scale=scale, checkpoints=tmp_path, group=None)
    assert seen[0].checkpoints == tmp_path / below


def test_local_steps_may_be_taken_in_bfloat16_and_the_table_says_so():
    panel = reproduction("table4", "cpu", 1, Changes(precision="bfloat16")).panels[0]
    for setting in panel.study.settings:
        assert setting.config.train.precision == "bfloat16"
    assert "local steps in bfloat16; weights and averages are float32" in panel.scaled

    exact = reproduction("table4", "cpu", 1).panels[0]
    assert exact.study.settings[0].config.train.precision == "float32"
    assert not any("bfloat16" in said for said in exact.scaled)

    assert Changes(precision="bfloat16").folder("cpu") == "cpu-bfloat16"
    assert checked_precision("bfloat16") == "bfloat16"
    with pytest.raises(
        InputError, match="--precision 'half': must be one of float32, bfloat16"
    ):
        checked_precision("half")


def test_pilots_have_the_schedule_of_the_runs_in_small():
    study = reproduction("table4", "cpu", 1, Changes(pilots=True)).panels[0].study
    pilots = study.pilots()
    assert [pilot.rate for pilot in pilots] == [0.05, 0.1, 0.2] * 4
    assert {pilot.config.train.iterations for pilot in pilots} == {960}
    assert all(pilot.config.local.decay_steps == [480, 720] for pilot in pilots)
    said = "; ".join(
        reproduction("table4", "cpu", 1, Changes(pilots=True)).panels[0].scaled
    )
    assert "out of 0.05, 0.1, 0.2, from a pilot of 960 steps" in said
    with pytest.raises(InputError, match="pilots are for --scale cpu"):
        reproduction("table4", "paper", 1, Changes(pilots=True))


def test_a_part_of_a_data_set_is_called_one(monkeypatch):
    class Half:
        x_train = range(25_000)
        clients = None

    monkeypatch.setattr("fedlama.paper.recipe.present", lambda: {"cifar100"})
    monkeypatch.setattr("fedlama.paper.sources.load_data", lambda name: Half)
    panel = reproduction("table2", "cpu").panels[0]
    part = "25,000 of the 50,000 training samples"
    assert (
        panel.title
        == f"CIFAR-100 with WRN-28-10 (here WRN-16-2, {part}), 100 % active (here 8 of 128), IID"
    )
    assert part in panel.scaled
    assert part in reproduction("table2", "paper").panels[0].scaled


def test_the_same_runs_serve_tables_and_figures():
    folders = {
        name: {panel.folder for panel in reproduction(name, "cpu").panels}
        for name in ("table1", "figure4")
    }
    assert folders["table1"] <= folders["figure4"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("tabel4", "did you mean table4"), ("table13", "table1 … table12")],
)
def test_what_the_paper_does_not_have(name, hint):
    with pytest.raises(InputError, match=hint):
        reproduction(name, "cpu")


def test_an_unknown_scale():
    with pytest.raises(InputError, match="must be one of smoke, cpu, paper"):
        reproduction("table1", "gpu")


def test_known_inconsistencies_of_the_paper_are_flagged():
    remarks = " ".join(reproduction("table4", "cpu").remarks)
    assert "84.02" in remarks
    assert "τ' = 10" in " ".join(reproduction("table12", "cpu").remarks)


def test_one_group_of_a_table():
    made = reproduction("table4", "cpu", group=2)
    assert [panel.title for panel in made.panels] == [
        reproduction("table4", "cpu").panels[1].title
    ]
    assert made.file_name == "table4-group2"
    with pytest.raises(InputError, match="table4 has 4 groups"):
        reproduction("table4", "cpu", group=5)
    with pytest.raises(InputError, match=r"^--group 3: table2 has one group$"):
        reproduction("table2", "cpu", group=3)


def test_what_is_printed_as_another_alpha_says_so():
    assert (
        reproduction("table4", "cpu")
        .panels[0]
        .title.endswith("25 % active (here 8 of 128), α = 0.1 (here 0.5)")
    )
    assert (
        reproduction("table4", "paper").panels[0].title.endswith("25 % active, α = 0.1")
    )
    assert (
        reproduction("table1", "cpu")
        .panels[0]
        .title.endswith("100 % active (here 8 of 128), IID")
    )
    # By writer
    assert reproduction("table3", "paper").panels[0].title.endswith("25 % active")
    # at 25 and 100 % the same clients train here, and α = 0.1 is 0.5 in both
    twins = [reproduction("table4", "cpu").panels[number] for number in (0, 2)]
    assert twins[0].folder == twins[1].folder == "cifar10-dirichlet0.5-8of128-window24"
    shared = "groups that differ only in what was scaled down have the same runs"
    assert shared in twins[0].scaled
    assert shared in twins[1].scaled


def test_data_that_stand_in_are_named_in_the_title(monkeypatch):
    monkeypatch.setattr("fedlama.paper.recipe.present", frozenset)
    monkeypatch.setattr(
        "fedlama.paper.recipe.Scale.source", lambda common: "mnist_by_writer"
    )
    title = reproduction("table3", "cpu").panels[0].title
    assert (
        title
        == "FEMNIST with the LEAF CNN (here mnist_by_writer), 25 % active (here 8 writers at a time)"
    )


def test_progress_counts_every_run_once(tmp_path):
    made = reproduction("table7", "cpu")
    cells = planned([(panel.study, tmp_path / panel.folder) for panel in made.panels])
    display = StudyDisplay(
        len(cells),
        sum(cell.config.train.iterations for cell in cells),
        None,
        io.StringIO(),
    )
    for cell in cells:
        display(cell, "done")
    assert sum(display._done.values()) == display.steps


def test_progress_says_of_a_run_that_diverged_that_it_did(tmp_path):
    cell = planned(
        [(panel.study, tmp_path) for panel in reproduction("table1", "cpu").panels]
    )[0]
    lines = io.StringIO()
    StudyDisplay(1, cell.config.train.iterations, None, lines)(cell, "diverged")
    # And no time that is left
    assert lines.getvalue() == f"1/1 runs · {cell.label}: diverged\n"


def test_a_smoke_test_is_tiny_and_never_called_a_result():
    made = reproduction("table12", "smoke")
    for panel, group in zip(made.panels, table_recipe("table12").group, strict=True):
        assert panel.title.startswith(
            "Smoke test, no result: FEMNIST with the LEAF CNN (here digits, mlp)"
        )
        assert "no result" in panel.study.note
        assert "no result" in panel.scaled[0]
        for setting in panel.study.settings:
            config = setting.config
            assert (
                config.data.name,
                config.model.name,
                config.participation.active,
            ) == ("digits", "mlp", 2)
            assert config.train.iterations == 160  # two cycles of FedLAMA(10, 8)
            assert len(setting.seeds) == group.seeds == 1
    assert Changes().folder("smoke") == "smoke"
    # Of three
    assert len(reproduction("table4", "smoke").panels[0].study.settings[0].seeds) == 2
    assert reproduction("table4", "cpu").panels[0].study.note is None


def test_a_smoke_test_takes_no_changes():
    with pytest.raises(InputError, match="--scale smoke takes no --iterations"):
        reproduction("table1", "smoke", None, Changes(iterations=96))


def test_the_frontier_has_two_scales():
    smoke = frontier_study("smoke")
    assert {
        (setting.seeds, setting.config.train.iterations) for setting in smoke.settings
    } == {((0,), 96)}
    assert "no result" in smoke.note
    assert [setting.name for setting in smoke.settings] == [
        setting.name for setting in frontier_study("cpu").settings
    ]
    with pytest.raises(InputError, match="it has the scales smoke and cpu"):
        frontier_study("paper")
