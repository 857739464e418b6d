"""Learning rates of published studies, whose pilots are not in the folder any more."""

import json
import shutil
from dataclasses import replace

import pytest

from fedlama.base import InputError
from fedlama.study.execute import run_study
from fedlama.study.study_file import parse_study

STUDY = {
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "partition": {"kind": "iid", "clients": 2},
    "train": {"iterations": 4},
    "output": {"tensorboard": False},
    "study": {
        "seeds": [0, 1],
        "baseline": "FedAvg(2)",
        "learning_rates": [0.1, 0.2],
        "setting": [
            {"policy": {"kind": "fedavg", "base_interval": 2}},
            {"policy": {"kind": "fedavg", "base_interval": 4}},
        ],
    },
}


def run(folder, *, train, study=STUDY, **options):
    return run_study(
        parse_study(study),
        folder,
        1,
        lambda cell, record: None,
        train=train,
        **options,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    run(folder, train=True)
    return folder


@pytest.fixture
def published(finished, tmp_path):
    """The same folder as it is published: without its pilots."""
    folder = tmp_path / "published"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "pilots")
    return folder


def test_choices_outlive_their_pilots(published):
    before = (published / "study.json").read_bytes()
    index = run(published, train=False)
    assert len(index.labels) == 4
    assert {choice.rate for choice in index.choices.values()} <= {0.1, 0.2}
    assert len(index.choices) == 2
    assert (published / "study.json").read_bytes() == before


def test_without_an_index_the_runs_themselves_say_their_rate(published):
    before = json.loads((published / "study.json").read_bytes())
    (published / "study.json").unlink()
    index = run(published, train=False)
    assert dict(index.labels) == before["labels"]
    # How they came by it is not known any more.
    assert not index.choices


def test_pilots_of_other_rates_decide_nothing(published):
    """The rate that was chosen is not among those of the study any more: its runs are not this study's."""
    other = {**STUDY, "study": {**STUDY["study"], "learning_rates": [0.01, 0.02]}}
    before = (published / "study.json").read_bytes()
    with pytest.raises(InputError, match=r"local\.learning_rate = 0\.\d, which is not"):
        run(published, train=False, study=other)
    assert (published / "study.json").read_bytes() == before


def test_a_finished_run_whose_rate_nobody_knows_is_no_reason_to_forget_it(published):
    """It diverged before it had a configuration, and index and pilots are gone."""
    for cell in published.glob("fedavg-4/seed*"):
        shutil.rmtree(cell)
        cell.mkdir()
        (cell / "diverged.txt").write_text("it did\n")
    (published / "study.json").unlink()
    with pytest.raises(InputError, match=r"at which learning rate FedAvg\(4\) was run"):
        run(published, train=False)
    assert not (published / "study.json").exists()


def test_a_part_of_a_study_leaves_the_rest_in_the_index(published):
    """Another sitting trains one setting: its pilots are run again, those of the others are not."""
    one = frozenset({("FedAvg(2)", 0), ("FedAvg(2)", 1)})
    study = replace(parse_study(STUDY), selected=one)
    before = json.loads((published / "study.json").read_bytes())
    index = run_study(study, published, 1, lambda cell, record: None)
    assert dict(index.labels) == before["labels"]
    assert set(index.choices) == {"FedAvg(2)", "FedAvg(4)"}
