"""What may be compared: runs that differ in policy, rules, codec, learning rate and seed, and in nothing else."""

import pytest
from hand_made import write_run

from fedlama.base import InputError
from fedlama.report import compare, compare_groups, markdown_table

DIRICHLET = {"kind": "dirichlet", "clients": 8}


def labels(group):
    return [setting.label for setting in group.comparison.settings]


def test_policies_rates_and_seeds_are_one_group_without_a_title(tmp_path):
    runs = [
        write_run(tmp_path / "a", policy="fast"),
        write_run(tmp_path / "b", policy="slow", local={"learning_rate": 0.2}),
        write_run(tmp_path / "c", seed=1, train={"checkpoint_minutes": 1.0, "device": "cpu"}),
    ]
    (group,) = compare_groups(runs)
    assert group.title == ""
    assert group.comparison == compare(runs)


@pytest.mark.parametrize(
    ("one", "other", "titles"),
    [
        ({"partition": {**DIRICHLET, "alpha": 0.5}}, {"partition": {**DIRICHLET, "alpha": 0.1}}, ["α 0.5", "α 0.1"]),
        ({"data": {"name": "digits"}}, {"data": {"name": "cifar10"}}, ["data digits", "data cifar10"]),
        ({"local": {"batch_size": 8}}, {"local": {"batch_size": 16}}, ["batch size 8", "batch size 16"]),
        ({"participation": {"window": 6}}, {"participation": {"window": 24}}, ["window 6", "window 24"]),
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
    assert [labels(group) for group in groups] == [["FedAvg(6)", "FedLAMA(6, 4)"], ["FedLAMA(6, 4)"]]
    assert not any(group.comparison.differences for group in groups)


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
        write_run(tmp_path / name / "run", data={"sha256": digit * 64}) for name, digit in (("old", "a"), ("new", "b"))
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
    with pytest.raises(InputError, match=r"baseline 'other' is none of the settings: FedAvg\(6\), FedAvg\(24\)"):
        compare_groups(runs, baseline="other")


def test_no_runs_are_refused():
    with pytest.raises(InputError, match="no run"):
        compare_groups([])


def test_a_cost_says_of_what(tmp_path):
    slow = write_run(tmp_path / "slow", policy="slow")
    assert "| cost, of FedAvg(24) |" in markdown_table(compare([slow]))  # by itself, of its own interval
    both = markdown_table(compare([slow, write_run(tmp_path / "fast", policy="fast")]))
    assert "| cost, of FedAvg(6) |" in both
    assert "| FedAvg(24) | 90.00 % | 25.00 % |" in both


def test_looking_at_clients_does_not_make_another_experiment(tmp_path):
    runs = [write_run(tmp_path / "a", evaluate={"clients": True}), write_run(tmp_path / "b", policy="fedavg")]
    assert len(compare_groups(runs)) == 1
