"""Some runs of a table: which they are, and what is said of names and seeds that it does not have."""

import pytest

from fedlama.base import InputError
from fedlama.paper.reproduce import reproduction
from fedlama.paper.scaling import Changes
from fedlama.paper.selection import select, with_seeds_there
from fedlama.study.plan import planned
from fedlama.study.selection import Selection, parse_seeds, select_of
from fedlama.study.study_file import parse_study


def chosen(made, tmp_path):
    """Setting and seed of every run that would be trained, in order."""
    cells = planned([(panel.study, tmp_path / panel.folder) for panel in made.panels])
    return [(cell.setting, cell.config.seed) for cell in cells]


def test_settings_and_seeds_choose_among_the_runs_of_a_table(tmp_path):
    whole = reproduction("table4", "paper", 1)
    (made,) = select([whole], Selection(("FedAvg(6)", "FedLAMA(6, 4)"), (0,)))
    assert chosen(made, tmp_path) == [("FedAvg(6)", 0), ("FedLAMA(6, 4)", 0)]
    # They are the runs that the whole table would have: the same folders and configurations
    every = {cell.path: cell.config for cell in whole.panels[0].study.cells({})}
    cells = planned([(made.panels[0].study, tmp_path)])
    assert all(every[cell.path] == cell.config for cell in cells)
    assert made.panels[0].folder == whole.panels[0].folder


def test_either_may_be_left_out(tmp_path):
    whole = reproduction("table4", "paper", 1)
    (made,) = select([whole], Selection(settings=("FedAvg(6)",)))
    assert chosen(made, tmp_path) == [("FedAvg(6)", seed) for seed in (0, 1, 2)]
    (made,) = select([whole], Selection(seeds=(1,)))
    assert {seed for _, seed in chosen(made, tmp_path)} == {1}
    assert select([whole], Selection()) == [whole]


def test_groups_without_such_a_run_are_left_out():
    # Table 3 has FedAvg(10), Table 4 FedAvg(6)
    tables = [reproduction("table3", "paper"), reproduction("table4", "paper")]
    (made,) = select(tables, Selection(settings=("FedAvg(6)",)))
    assert made.name == "table4"


def test_names_and_seeds_that_are_not_there_are_refused_with_those_that_are():
    made = reproduction("table4", "paper", 1)
    with pytest.raises(InputError, match=r"^--setting 'FedAvg\(7\)': .* FedAvg\(6\), "):
        select([made], Selection(settings=("FedAvg(6)", "FedAvg(7)")))
    with pytest.raises(InputError, match=r"^--seeds 7: .* 0, 1, 2$"):
        select([made], Selection(seeds=(0, 7)))


def test_a_seed_that_the_chosen_setting_does_not_have():
    often = {"policy": {"kind": "fedavg", "base_interval": 6}}
    once = {"policy": {"kind": "fedavg", "base_interval": 24}, "seeds": [0]}
    study = parse_study(
        {
            "data": {"name": "digits"},
            "train": {"iterations": 48},
            "study": {"seeds": [0, 1], "setting": [often, once]},
        }
    )
    found = select_of(study, Selection(seeds=(1,)))
    assert found.selected == {("FedAvg(6)", 1)}
    with pytest.raises(InputError, match="no run has both"):
        select_of(study, Selection(("FedAvg(24)",), (1,)))


def test_pilots_of_chosen_settings_only(tmp_path):
    whole = reproduction("table4", "cpu", 1, Changes(pilots=True))
    (made,) = select([whole], Selection(settings=("FedAvg(6)",)))
    assert {setting for setting, _ in chosen(made, tmp_path)} == {"FedAvg(6)"}
    pilots = made.panels[0].study.selected_of(made.panels[0].study.pilots())
    assert pilots


@pytest.mark.parametrize("text", ["", "0,", "a", "-1", "0;1", "1.5", "9" * 5000])
def test_seeds_are_numbers_with_commas(text):
    with pytest.raises(InputError, match=r"^--seeds "):
        parse_seeds(text)


def test_seeds_once_each():
    assert parse_seeds("0, 2,0") == (0, 2)
    assert parse_seeds(None) == ()


def test_a_figure_of_summaries_is_over_the_seeds_that_are_there(tmp_path):
    made = reproduction("figure2", "cpu")
    panel, _ = made.panels
    assert with_seeds_there(made, tmp_path) == made
    home = tmp_path / panel.folder
    for run in ("fedlama-6-4/seed2", "fedlama-6-4/seed1", "fedavg-6/seed1"):
        (home / run).mkdir(parents=True)
        (home / run / "summary.json").write_text("{}")
    # Not finished, of another setting, and no seed
    for run in ("fedavg-6/seed2", "fedavg-24/seed1", "fedavg-6/seedling"):
        (home / run).mkdir(parents=True)
    (home / "fedavg-24/seed1/summary.json").write_text("{}")
    (home / "fedavg-6/seedling/summary.json").write_text("{}")

    there, _ = with_seeds_there(made, tmp_path).panels
    found = {setting.name: setting.seeds for setting in there.study.settings}
    assert found == {
        "FedAvg(6)": (0, 1),
        "FedLAMA(6, 2)": (0,),
        "FedLAMA(6, 4)": (0, 1, 2),
    }
    assert "one seed" in panel.scaled
    assert "one seed in the recipe" in there.scaled

    # A table is of its recipe's seeds
    table = reproduction("table7", "cpu")
    assert with_seeds_there(table, tmp_path) == table
