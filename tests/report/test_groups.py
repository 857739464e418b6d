"""What may be compared: runs that differ in policy, rules, codec, learning rate and seed, and in nothing else."""

import pytest
from hand_made import write_run

from fedlama.base import InputError
from fedlama.report import compare, compare_groups, markdown_table
from fedlama.report.numbers.intervals import interval_maps

DIRICHLET = {"kind": "dirichlet", "clients": 8}


def labels(group):
    return [setting.label for setting in group.comparison.settings]


def test_policies_rates_and_seeds_are_one_group_without_a_title(tmp_path):
    runs = [
        write_run(tmp_path / "a", policy="fast"),
        write_run(tmp_path / "b", policy="slow", local={"learning_rate": 0.2}),
        write_run(
            tmp_path / "c", seed=1, train={"checkpoint_minutes": 1.0, "device": "cpu"}
        ),
    ]
    (group,) = compare_groups(runs)
    assert group.title == ""
    assert group.comparison == compare(runs)


def test_fedlama_with_factor_one_is_fedavg(tmp_path):
    runs = [
        write_run(tmp_path / "a", policy="fast"),
        write_run(tmp_path / "b", policy="factor one"),
        write_run(tmp_path / "c"),
    ]
    comparison = compare(runs)
    # One setting, whatever the files call it
    labels = [setting.label for setting in comparison.settings]
    assert labels == ["FedAvg(6)", "FedLAMA(6, 4)"]
    assert [setting.adapts for setting in comparison.settings] == [False, True]
    assert [one.label for one in interval_maps(comparison)] == ["FedLAMA(6, 4)"]
    named = {run.path: "plain" for run in runs[:2]}
    (one,) = compare(runs[:2], labels=named).settings
    assert one.label == "plain"


@pytest.mark.parametrize(
    ("one", "other", "titles"),
    [
        (
            {"partition": {**DIRICHLET, "alpha": 0.5}},
            {"partition": {**DIRICHLET, "alpha": 0.1}},
            ["α 0.5", "α 0.1"],
        ),
        (
            {"data": {"name": "digits"}},
            {"data": {"name": "cifar10"}},
            ["data digits", "data cifar10"],
        ),
        (
            {"local": {"batch_size": 8}},
            {"local": {"batch_size": 16}},
            ["batch size 8", "batch size 16"],
        ),
        (
            {"participation": {"window": 6}},
            {"participation": {"window": 24}},
            ["window 6", "window 24"],
        ),
        (
            {"model": {"layers": "tensor"}},
            {"model": {"layers": "module"}},
            ["model.layers tensor", "model.layers module"],
        ),
    ],
)
def test_runs_of_other_tasks_are_never_compared(tmp_path, one, other, titles):
    runs = [
        write_run(tmp_path / "a", policy="fast", **one),
        write_run(tmp_path / "b", policy="fedlama", **other),
        write_run(tmp_path / "c", policy="fedlama", **one),
    ]
    groups = compare_groups(runs)
    assert [group.title for group in groups] == titles
    assert [labels(group) for group in groups] == [
        ["FedAvg(6)", "FedLAMA(6, 4)"],
        ["FedLAMA(6, 4)"],
    ]
    assert not any(group.comparison.differences for group in groups)


def test_other_networks_under_the_same_name_are_never_compared(tmp_path):
    own = {"model": {"name": "mymodule:build"}}
    runs = [
        write_run(tmp_path / "a", policy="fast", **own),
        write_run(tmp_path / "b", policy="fast", layers={"fc.weight": 16_000}, **own),
        write_run(tmp_path / "c", finished=False, **own),
    ]
    groups = compare_groups(runs)
    assert [group.title for group in groups] == [
        "network of 100 parameters",
        "network of 16,000 parameters",
    ]
    assert [labels(group) for group in groups] == [
        ["FedAvg(6)", "FedLAMA(6, 4)"],
        ["FedAvg(6)"],
    ]
    # As many parameters, in other layers: only their folders tell them apart.
    same = [
        runs[0],
        write_run(tmp_path / "d", policy="fast", layers={"fc.weight": 100}, **own),
    ]
    assert [group.title for group in compare_groups(same)] == ["a", "d"]


def test_code_that_differs_between_runs_is_noted(tmp_path):
    def written(name, digit, **changes):
        hashes = {
            "mymodule:build": digit * 64,
            "mymodule:load": "c" * 64,
            "mymodule:build until round 2": digit * 64,
        }
        return write_run(tmp_path / name, hashes=hashes, **changes)

    first = written("a", "a", policy="fast")
    (group,) = compare_groups([first, written("b", "b")])
    assert "The code of mymodule:build differs between these runs." in markdown_table(
        group.comparison
    )
    (group,) = compare_groups([first, written("c", "a")])
    assert "differs between" not in markdown_table(group.comparison)


@pytest.mark.parametrize("everyone", [{"active": 1.0}, {"active": 8}])
def test_a_window_means_nothing_where_everyone_trains(tmp_path, everyone):
    partition = {"kind": "iid", "clients": 8}
    runs = [
        write_run(
            tmp_path / "a",
            policy="fast",
            participation={**everyone, "window": 6},
            partition=partition,
        ),
        write_run(
            tmp_path / "b",
            policy="fedlama",
            participation={**everyone, "window": 24},
            partition=partition,
        ),
    ]
    (group,) = compare_groups(runs)
    assert labels(group) == ["FedAvg(6)", "FedLAMA(6, 4)"]
    assert not group.comparison.differences


@pytest.mark.parametrize(
    ("one", "other", "titles"),
    [
        # 48 and 96 steps are evaluated every 3 and every 5: that follows.
        (
            {"train": {"evaluate_every": 3}},
            {"train": {"iterations": 96, "evaluate_every": 5}},
            ["steps 48", "steps 96"],
        ),
        (
            {"train": {"evaluate_every": 3}},
            {"train": {"iterations": 96, "evaluate_every": 8}},
            ["steps 48, evaluated every 3", "steps 96, evaluated every 8"],
        ),
        (
            {"partition": {"kind": "iid", "clients": 8}},
            {"partition": {**DIRICHLET, "alpha": 0.5}},
            ["partition iid", "partition dirichlet, α 0.5"],
        ),
        (
            {"partition": {"kind": "iid", "clients": 8}},
            {"partition": {**DIRICHLET, "alpha": 0.5, "min_samples": 10}},
            ["partition iid", "partition dirichlet, α 0.5"],
        ),
        (
            {"partition": {"kind": "iid", "clients": 8}},
            {"partition": {**DIRICHLET, "alpha": 0.5, "min_samples": 3}},
            ["partition iid", "partition dirichlet, α 0.5, partition.min_samples 3"],
        ),
        (
            {},
            {
                "train": {
                    "metric": "my:error",
                    "metric_name": "mistakes",
                    "higher_is_better": False,
                }
            },
            ["metric default", "metric my:error"],
        ),
    ],
)
def test_a_title_has_neither_what_a_group_lacks_nor_what_follows(
    tmp_path, one, other, titles
):
    groups = compare_groups(
        [write_run(tmp_path / "a", **one), write_run(tmp_path / "b", **other)]
    )
    assert [group.title for group in groups] == titles


def test_rules_are_compared_and_named(tmp_path):
    runs = [
        write_run(tmp_path / "plain"),
        write_run(tmp_path / "prox", local={"rule": "fedprox", "mu": 0.1}),
    ]
    (group,) = compare_groups(runs)
    assert labels(group) == ["FedLAMA(6, 4)", "FedLAMA(6, 4) + FedProx(0.1)"]


def test_hashes_are_in_no_label_and_in_no_title(tmp_path):
    """The same name, but other files: two tasks, which only their folders tell apart."""
    runs = [
        write_run(tmp_path / name / "run", data={"sha256": digit * 64})
        for name, digit in (("old", "a"), ("new", "b"))
    ]
    groups = compare_groups(runs)
    assert [group.title for group in groups] == ["old/run", "new/run"]
    both = [setting.label for setting in compare(runs).settings]
    assert both == ["FedLAMA(6, 4) (old/run)", "FedLAMA(6, 4) (new/run)"]


def test_a_baseline_counts_in_the_groups_that_have_it(tmp_path):
    runs = [
        write_run(tmp_path / "a", policy="fast"),
        write_run(tmp_path / "b", policy="slow"),
        write_run(tmp_path / "c", policy="fast", local={"batch_size": 8}),
    ]
    first, second = compare_groups(runs, baseline="FedAvg(24)")
    assert first.comparison.baseline.label == "FedAvg(24)"
    assert second.comparison.baseline.label == "FedAvg(6)"
    with pytest.raises(
        InputError,
        match=r"baseline 'other' is none of the settings: FedAvg\(6\), FedAvg\(24\)",
    ):
        compare_groups(runs, baseline="other")


def test_no_runs_are_refused():
    with pytest.raises(InputError, match="no run"):
        compare_groups([])


def test_a_cost_says_of_what(tmp_path):
    slow = write_run(tmp_path / "slow", policy="slow")
    # By itself, of its own interval
    assert "| cost, of FedAvg(24) |" in markdown_table(compare([slow]))
    both = markdown_table(compare([slow, write_run(tmp_path / "fast", policy="fast")]))
    assert "| cost, of FedAvg(6) |" in both
    assert "| FedAvg(24) | 90.00 % | 0.00 | 25.00 % |" in both


def test_looking_at_clients_does_not_make_another_experiment(tmp_path):
    runs = [
        write_run(tmp_path / "a", evaluate={"clients": True}),
        write_run(tmp_path / "b", policy="fedavg"),
    ]
    assert len(compare_groups(runs)) == 1
