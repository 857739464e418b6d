"""A run builds its policy, draws its partition and reads its data once."""

import os
import sys
from pathlib import Path

import pytest

from fedlama import (
    IID,
    SGD,
    Dirichlet,
    FedAvg,
    FedLAMA,
    InputError,
    data,
    models,
    simulate,
)
from fedlama.cli.run import run
from fedlama.cli.studies import train_and_draw
from fedlama.data import Dataset, Shards
from fedlama.run import resolve as resolving
from fedlama.run.choice_sections import BUILT
from fedlama.run.config import parse_config
from fedlama.run.execute import execute
from fedlama.run.kept import MAX_DATA_SETS, MAX_RUNS, Kept
from fedlama.run.resolve import data_hash, load_data, prepared_data, resolve
from fedlama.run.toml import to_toml
from fedlama.study.execute import run_study
from fedlama.study.sitting import Sitting
from fedlama.study.study_file import parse_study

TABLES = {
    "data": {"name": "digits", "validation": 0.2},
    "partition": {"kind": "dirichlet", "clients": 5, "alpha": 0.5},
    "participation": {"active": 3},
    "policy": {"base_interval": 2, "increase_factor": 2},
    "local": {"batch_size": 16},
    "train": {"iterations": 4},
    "output": {"tensorboard": False},
}


@pytest.fixture
def counts(monkeypatch):
    """How often each of these is called."""
    load_data.cache_clear()
    BUILT.clear()
    counted = {}

    def count(owner, name):
        counted[name] = 0
        original = getattr(owner, name)

        def counting(*arguments, **options):
            counted[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(
            owner, name, staticmethod(counting) if name == "by_owner" else counting
        )

    count(FedLAMA, "__post_init__")
    count(Shards, "by_owner")
    count(Dataset, "hold_out")
    count(resolving, "load")
    yield counted
    load_data.cache_clear()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_builds_everything_once(counts, tmp_path, workers):
    execute(parse_config(TABLES), tmp_path / "run", workers=workers)
    assert counts == ONCE


ONCE = {"__post_init__": 1, "by_owner": 1, "hold_out": 1, "load": 1}


def test_the_whole_command_builds_everything_once(
    counts, tmp_path, monkeypatch, capsys
):
    # Progress, report and page ask for the same policy, data and partition as the run.
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(to_toml(TABLES))
    run(Path("c.toml"), out=tmp_path / "run", workers=1)
    assert "report:" in capsys.readouterr().out
    assert counts == ONCE


def test_a_study_builds_each_setting_once_before_its_runs(counts, tmp_path):
    tables = {
        **TABLES,
        "data": {"name": "digits"},
        "study": {"seeds": [0, 1], "setting": [{"name": "one"}]},
    }
    resolving.RESOLVED.clear()
    # In this process the first seed's run is built; the second is built by the process that trains it.
    run_study(parse_study(tables), tmp_path, 1, lambda cell, record: None)
    assert counts == {"__post_init__": 1, "by_owner": 1, "hold_out": 0, "load": 1}


def test_what_is_resolved_already_is_not_built_again(counts, tmp_path):
    resolved = resolve(parse_config(TABLES))
    before = dict(counts)
    result = execute(resolved, tmp_path / "run", workers=1)
    assert counts == before == ONCE
    assert result.iterations == 4


def test_what_is_built_is_what_the_configuration_says():
    resolved = resolve(parse_config(TABLES))
    assert resolved.policy == FedLAMA(2, 2)
    assert resolved.local == SGD(0.1, 16)
    assert len(resolved.data.x_train) + len(resolved.data.x_test) == len(
        data.digits().x_train
    )
    expected = Dirichlet(5, 0.5).assign(resolved.data, 0)
    assert resolved.shards.order.tolist() == expected.order.tolist()
    assert resolved.config.partition.clients == 5
    assert resolved.config.participation.window == 4


def test_shards_that_were_dealt_before_are_a_partition():
    digits = data.digits()
    job = {"policy": FedAvg(2), "local": SGD(0.1, 16), "iterations": 2, "seed": 3}
    dealt = IID(4).assign(digits, 3)
    first = simulate(lambda: models.small_cnn(10), digits, partition=IID(4), **job)
    second = simulate(lambda: models.small_cnn(10), digits, partition=dealt, **job)
    assert first.records == second.records
    with pytest.raises(
        InputError, match="these shards deal 1437 samples, but the data has 1150"
    ):
        simulate(
            lambda: models.small_cnn(10),
            digits.hold_out(0.2, 0),
            partition=dealt,
            **job,
        )


COUNTING = """
import os
from pathlib import Path

import fedlama


def note(what):
    with Path("built.txt").open("a") as file:
        file.write(f"{what} {os.getpid()}\\n")


class MyPolicy(fedlama.FedLAMA):
    def __init__(self, base_interval):
        note("policy")
        super().__init__(base_interval, 2)


class MyPartition:
    def assign(self, data, seed):
        note(f"assign {len(data.x_train)} samples with seed {seed}")
        return fedlama.IID(4).assign(data, seed)


def load():
    note("load")
    digits = fedlama.data.digits()
    return digits.x_train, digits.y_train, digits.x_test, digits.y_test
"""


@pytest.fixture
def own_study(tmp_path, monkeypatch):
    """A study with classes of one's own that write down when they are built, and in which process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("counting.py").write_text(COUNTING)
    load_data.cache_clear()
    data_hash.cache_clear()
    sys.modules.pop("counting", None)
    tables = {
        "data": {"name": "counting:load"},
        "partition": {"kind": "counting:MyPartition"},
        "policy": {"kind": "counting:MyPolicy", "base_interval": 2},
        "local": {"batch_size": 16},
        "train": {"iterations": 4},
        "output": {"tensorboard": False},
        "study": {"seeds": [0, 1], "setting": [{"name": "mine"}]},
    }
    yield tables
    load_data.cache_clear()
    data_hash.cache_clear()


def lines_of_file():
    return Path("built.txt").read_text().splitlines()


def test_a_study_builds_what_is_ones_own_once_per_run(own_study):
    # The whole command: the plan, the runs and the page ask for the same.
    study = parse_study(own_study)
    # What the window follows from is asked of each setting when the file is read.
    assert lines_of_file() == [f"policy {os.getpid()}"]
    Path("built.txt").unlink()

    drawn = train_and_draw(
        study, Path("out"), 1, Sitting(), plan_only=False, train=True
    )
    assert drawn is not None
    here = str(os.getpid())
    built = [line.rpartition(" ")[0] for line in lines_of_file()]
    processes = [line.rpartition(" ")[2] for line in lines_of_file()]
    # Two runs: two policies, two partitions, the data once. The digits have 1,437 training samples.
    assert sorted(built) == [
        "assign 1437 samples with seed 0",
        "assign 1437 samples with seed 1",
        "load",
        "policy",
        "policy",
    ]
    # The first seed's in this process, the second's in the one that trains it
    assert processes.count(here) == 3
    assert len(set(processes)) == 2


def test_a_study_builds_its_pilots_once(own_study):
    own_study["study"] = {
        "seeds": [0],
        "learning_rates": [0.05, 0.2],
        "validation": 0.2,
        "pilot_iterations": 4,
        "setting": [{"name": "mine"}],
    }
    study = parse_study(own_study)
    Path("built.txt").unlink()
    train_and_draw(study, Path("out"), 1, Sitting(), plan_only=False, train=True)
    assigned = [line.rpartition(" ")[0] for line in lines_of_file() if "assign" in line]
    # A fifth of 1,437 samples is held out of the pilots: 1,437 − 287 = 1,150 are left. Two pilots, and one run of the
    # table; and for the plan the setting as the file has it, whose learning rate is not among those that are tried.
    assert sorted(assigned) == [
        "assign 1150 samples with seed 0",
        "assign 1150 samples with seed 0",
        "assign 1437 samples with seed 0",
        "assign 1437 samples with seed 0",
    ]


def test_a_run_that_is_finished_is_resolved_once_to_compare_it(own_study):
    study = parse_study(own_study)
    run_study(study, Path("out"), 1, lambda cell, record: None)
    Path("built.txt").unlink()
    train_and_draw(
        parse_study(own_study), Path("out"), 1, Sitting(), plan_only=False, train=True
    )
    assigned = [line.rpartition(" ")[0] for line in lines_of_file() if "assign" in line]
    assert sorted(assigned) == [
        "assign 1437 samples with seed 0",
        "assign 1437 samples with seed 1",
    ]


def test_only_the_last_few_data_sets_are_kept():
    kept = Kept()
    configs = []
    for share in range(MAX_DATA_SETS + 1):
        data = {"name": "digits", "validation": (share + 1) / 10}
        configs.append(parse_config({**TABLES, "data": data}))
    built = []

    def build(config):
        built.append(config.data.validation)
        return object()

    for config in configs:
        assert kept.get(config, build) is kept.get(config, build)
    # With the fifth data set went the first, and what was built with it.
    assert built == [0.1, 0.2, 0.3, 0.4, 0.5]
    kept.get(configs[-1], build)
    kept.get(configs[0], build)
    assert built == [0.1, 0.2, 0.3, 0.4, 0.5, 0.1]


def test_what_is_kept_has_a_limit():
    kept = Kept()
    for seed in range(MAX_RUNS + 1):
        config = parse_config({**TABLES, "seed": seed})
        kept.get(config, lambda config: config.seed)
    # TABLES hold a part of the data out, by the seed: these are data sets of their own.
    assert kept.count == MAX_DATA_SETS

    whole = {**TABLES, "data": {"name": "digits"}}
    kept = Kept()
    for seed in range(MAX_RUNS + 1):
        kept.get(parse_config({**whole, "seed": seed}), lambda config: config.seed)
    # The 65th begins anew.
    assert kept.count == 1


def test_a_part_that_is_held_out_is_one_copy(counts):
    config = parse_config(TABLES)
    first = prepared_data(config)
    again = prepared_data(config)
    assert again.x_train is first.x_train
    assert counts["hold_out"] == 1
