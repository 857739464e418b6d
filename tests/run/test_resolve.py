"""A run builds its policy, draws its partition and reads its data once."""

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
from fedlama.data import Dataset, Shards
from fedlama.run import resolve as resolving
from fedlama.run.choice_sections import BUILT
from fedlama.run.config import parse_config
from fedlama.run.execute import execute
from fedlama.run.resolve import load_data, resolve
from fedlama.run.toml import to_toml
from fedlama.study.execute import run_study
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
