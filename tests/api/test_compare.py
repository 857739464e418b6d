"""`fedlama.compare`: a study in Python."""

import sys
from statistics import fmean, stdev
from types import ModuleType

import pytest
from torch import nn

import fedlama
from fedlama.study.index import read_index
from fedlama.study.runs import find_runs


def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))


COMMON = {
    "model": network,
    "data": fedlama.data.digits(),
    "local": fedlama.SGD(0.1, 16),
    "partition": fedlama.Dirichlet(6, 0.5),
    "participation": 3,
    "iterations": 16,
}
SETTINGS = {
    "FedAvg": {"policy": fedlama.FedAvg(2)},
    "FedLAMA": {"policy": fedlama.FedLAMA(2, 4)},
}


def test_settings_are_compared_seed_by_seed(tmp_path, capsys):
    found = fedlama.compare(
        SETTINGS, seeds=2, out=tmp_path / "study", workers=2, progress=True, **COMMON
    )
    said = capsys.readouterr().err
    assert said.startswith("plan: 4 runs to train, ")
    assert "FedLAMA, seed 1: done" in said
    expected = {}
    for name, own in SETTINGS.items():
        for seed in (0, 1):
            # The window is common to all: a cycle of FedLAMA(2, 4)
            expected[name, seed] = fedlama.simulate(
                **COMMON, **own, seed=seed, window=8
            )
    for name, runs in found.runs.items():
        for seed, run in enumerate(runs):
            assert run.records == expected[name, seed].records
    row = found["FedLAMA"]
    differences = [
        expected["FedLAMA", seed].accuracy - expected["FedAvg", seed].accuracy
        for seed in (0, 1)
    ]
    assert row.difference.mean == pytest.approx(fmean(differences))
    assert row.difference.error == pytest.approx(stdev(differences) / 2**0.5)
    assert row.difference.seeds == (0, 1)
    sent = {
        name: sum(expected[name, seed].uplink_bytes for seed in (0, 1))
        for name in SETTINGS
    }
    assert row.uplink == pytest.approx(sent["FedLAMA"] / sent["FedAvg"])
    assert found["FedAvg"].difference is None
    assert found["FedAvg"].uplink == 1.0
    assert "uplink, of FedAvg" in repr(found)
    *table, note = repr(found).splitlines()
    assert len(table) == 3
    assert note.endswith(
        "differences are to FedAvg, seed by seed: mean ± standard error."
    )
    sign = "−" if row.difference.mean < 0 else "+"
    assert (
        f"{sign}{abs(100 * row.difference.mean):.2f} ± {100 * row.difference.error:.2f} points"
        in table[2]
    )
    assert "<th>− FedAvg</th>" in found._repr_html_()
    assert len(found.plot().axes[0].lines) == 2

    # Its folder is a study's, with its tables and its page.
    index = read_index(tmp_path / "study")
    assert index.baseline == "FedAvg"
    assert set(index.labels.values()) == {"FedAvg", "FedLAMA"}
    names = {path.name for path in (tmp_path / "study").iterdir()}
    assert {"report.html", "report.png", "table.md", "table.csv", "table.tex"} <= names
    assert "FedLAMA" in (tmp_path / "study" / "table.md").read_text()
    assert len(find_runs([tmp_path / "study"])) == 4


def test_what_is_there_is_not_trained_again_and_what_is_missing_is(tmp_path):
    first = fedlama.compare(SETTINGS, seeds=1, out=tmp_path, workers=1, **COMMON)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rounds.jsonl")}
    second = fedlama.compare(SETTINGS, seeds=[0, 3], out=tmp_path, workers=1, **COMMON)
    assert second["FedAvg"].seeds == (0, 3)
    assert second.runs["FedAvg"][0].records == first.runs["FedAvg"][0].records
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_a_finished_run_serves_although_something_else_was_to_be_evaluated(
    tmp_path, capsys
):
    fedlama.compare(SETTINGS, seeds=1, out=tmp_path, workers=1, **COMMON)
    capsys.readouterr()
    beside = {**COMMON, "evaluate_average": True}
    both = fedlama.compare(SETTINGS, seeds=2, out=tmp_path, workers=1, **beside)
    first, second = both.runs["FedAvg"]
    assert first.summary.average_score is None
    assert second.summary.average_score is not None
    said = capsys.readouterr().err
    assert "fedavg/seed0 was finished with another [evaluate] table" in said
    assert "seed1" not in said


def test_a_refused_comparison_leaves_the_finished_one_as_it_was(tmp_path, capsys):
    fedlama.compare(SETTINGS, seeds=1, out=tmp_path, workers=1, **COMMON)
    kept = (tmp_path / "study.json").read_bytes()
    settings = {**SETTINGS, "another": {"policy": fedlama.FedAvg(4)}}
    for progress in (False, True):
        with pytest.raises(
            fedlama.InputError,
            match=r"another configuration .*choose another folder \(out=",
        ):
            fedlama.compare(
                settings,
                seeds=2,
                out=tmp_path,
                progress=progress,
                **{**COMMON, "iterations": 8},
            )
        assert (tmp_path / "study.json").read_bytes() == kept
    assert "plan" not in capsys.readouterr().err  # of what would not be done


def defined_without_a_file(text):
    """A function as a notebook has it."""
    names = {"nn": nn, "__name__": "__main__"}
    exec(compile(text, "<cell>", "exec"), names)
    return names["net"]


def test_a_changed_network_of_a_notebook_is_noticed(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    text = "def net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.{}(), nn.Linear(12, 10))\n"
    common = {**COMMON, "model": defined_without_a_file(text.format("ReLU"))}
    fedlama.compare(SETTINGS, seeds=2, out=tmp_path, workers=1, **common)
    assert "changed since" not in capsys.readouterr().err
    fedlama.compare(SETTINGS, seeds=2, out=tmp_path, workers=1, **common)
    assert "changed since" not in capsys.readouterr().err

    # The same layers: told in one line, however many runs there are
    common["model"] = defined_without_a_file(text.format("Tanh"))
    fedlama.compare(SETTINGS, seeds=2, out=tmp_path, workers=1, **common)
    told = capsys.readouterr().err
    assert told.count("changed since") == 1
    assert f"the code of __main__:net changed since runs in {tmp_path} began" in told

    # Others: their results are not these
    common["model"] = defined_without_a_file(text.format("Tanh").replace("12", "7"))
    with pytest.raises(
        fedlama.InputError, match="holds a run of another network"
    ) as error:
        fedlama.compare(SETTINGS, seeds=2, out=tmp_path, workers=1, **common)
    assert "(910 parameters in 4 layers; the model now has 535 in 4)" in str(
        error.value
    )


def test_settings_that_differ_in_their_metric_or_diverge(tmp_path):
    settings = {
        **SETTINGS,
        "too fast": {"policy": fedlama.FedAvg(2), "local": fedlama.SGD(1e30, 16)},
    }
    found = fedlama.compare(settings, seeds=1, out=tmp_path, workers=1, **COMMON)
    assert found.diverged == {"too fast": 1}
    assert found["too fast"].score is None
    assert "(1 diverged)" in repr(found)
    assert found["FedLAMA"].difference.error is None


def test_mistakes_are_told_in_words_of_python(tmp_path):
    with pytest.raises(
        fedlama.InputError,
        match=r"^baseline='nope' is none of the settings: FedAvg, FedLAMA$",
    ):
        fedlama.compare(SETTINGS, baseline="nope", out=tmp_path, **COMMON)
    with pytest.raises(
        fedlama.InputError, match=r"participation: 99 clients, but there are only 6"
    ):
        fedlama.compare(SETTINGS, out=tmp_path, **{**COMMON, "participation": 99})


def test_a_preset_is_a_setting(tmp_path):
    settings = {
        "FedAvg": {"policy": fedlama.FedAvg(2)},
        "frugal": fedlama.presets.frugal(2, share=0.1),
    }
    found = fedlama.compare(settings, seeds=1, out=tmp_path, workers=1, **COMMON)
    assert found["frugal"].uplink < 0.5


@pytest.mark.parametrize(
    ("settings", "changes", "sentence"),
    [
        ({}, {}, "needs settings by name"),
        ({"a": 3}, {}, "must have arguments of fedlama.simulate in a dictionary"),
        ({"a": {"polcy": 3}}, {}, "'polcy' is no argument of fedlama.simulate"),
        ({"a": {}}, {}, "'a' needs policy="),
        ({"a": {"policy": fedlama.FedAvg}}, {}, "policy must be made with"),
        (SETTINGS, {"seeds": 0}, "seeds must be at least 1"),
        (SETTINGS, {"seeds": [-1]}, "a seed must be at least 0"),
        (SETTINGS, {"seeds": "one"}, "seeds must be a whole number"),
        (
            SETTINGS,
            {"baseline": "FedSGD"},
            "baseline='FedSGD' is none of the settings: FedAvg, FedLAMA",
        ),
        (
            {"a": {"policy": fedlama.FedAvg(2)}, "A": {"policy": fedlama.FedAvg(4)}},
            {},
            "would share the folder",
        ),
        (SETTINGS, {"participation": 1}, "may mean one client or all of them"),
    ],
)
def test_wrong_arguments_are_told_in_a_sentence(tmp_path, settings, changes, sentence):
    with pytest.raises(fedlama.InputError, match=sentence):
        fedlama.compare(
            settings, **{"seeds": 1, "out": tmp_path / "study", **COMMON, **changes}
        )
    assert not (tmp_path / "study").exists()
