"""What a run is called where nobody named it."""

import pytest

from fedlama.run.config import parse_config
from fedlama.run.labels import asked_share, default_name, run_label
from fedlama.study.study_file import parse_study

TASK = {"data": {"name": "digits"}, "train": {"iterations": 48}}


def config(**tables):
    return parse_config({**TASK, **tables})


@pytest.mark.parametrize(
    ("tables", "label"),
    [
        ({}, "frugal"),
        ({"share": 0.01}, "frugal"),
        ({"share": 0.005}, "frugal, 0.5 %"),
        # Below half a percent, layers are sent less often
        ({"share": 0.003}, "frugal, 0.3 %"),
        ({"share": 0.0017}, "frugal, 0.17 %"),
        ({"share": 0.00125}, "frugal, 0.125 %"),
        ({"share": 0.25}, "frugal, 25 %"),
        ({"policy": {"base_interval": 12}}, "frugal(12)"),
        ({"share": 0.02, "policy": {"base_interval": 12}}, "frugal(12), 2 %"),
        ({"averaged": 0.5}, "frugal, averaged 0.5"),
        ({"averaged": 0.7, "share": 0.03}, "frugal, 3 %, averaged 0.7"),
        # Half of the preset's averages: the same as another share of the uplink
        ({"policy": {"share": 0.5}}, "frugal, 0.5 %, averaged 0.5"),
    ],
)
def test_a_preset_is_called_by_its_name(tables, label):
    found = config(preset="frugal", **tables)
    assert default_name(found) == label
    assert run_label(found) == label
    # A run directory has the tables that the preset gave, and not its name
    written = found.model_dump(exclude_none=True)
    assert "preset" not in written
    assert run_label(parse_config(written)) == label


def test_what_a_preset_was_to_send_is_known_from_its_tables():
    for share in (0.00125, 0.0025, 0.01, 0.25):
        assert asked_share(config(preset="frugal", share=share)) == share
    assert asked_share(config(preset="frugal", averaged=0.5)) == 0.01
    assert asked_share(config()) is None


def test_clients_rules_stand_beside_it():
    found = config(preset="frugal", local={"rule": "fedprox", "mu": 0.1})
    assert run_label(found) == "frugal + FedProx(0.1)"


@pytest.mark.parametrize(
    ("tables", "label"),
    [
        ({"server": {"rule": "momentum", "beta": 0.5}}, "frugal + Momentum(0.5)"),
        (
            {"downlink": {"codec": "rotate", "bits": 0.8}, "share": 0.005},
            "frugal, 0.5 %, downlink Rotate(0.8)",
        ),
    ],
)
def test_what_the_server_does_stands_beside_it(tables, label):
    assert run_label(config(preset="frugal", **tables)) == label


@pytest.mark.parametrize(
    ("tables", "label"),
    [
        ({"policy": {"staggered": True}}, "Budget(6, 24, 1"),
        ({"policy": {"cycle": 48}}, "Budget(6, 48, 1"),
        ({"uplink": {"share": 0.004}}, "Budget(6, 24, 1"),
        ({"uplink": {"error_feedback": "window"}}, "window feedback"),
    ],
)
def test_another_policy_or_code_of_the_uplink_is_not_called_by_the_presets_name(
    tables, label
):
    found = config(preset="frugal", **tables)
    assert "frugal" not in run_label(found)
    assert label in run_label(found)


def test_others_are_called_by_their_policy():
    coded = config(
        policy={"kind": "fedavg", "base_interval": 6},
        uplink={"codec": "rotate", "bits": 0.32},
    )
    assert run_label(coded) == "FedAvg(6) + Rotate(0.32)"
    assert default_name(coded) == "FedAvg(6)"


def test_presets_of_different_shares_are_settings_of_their_own():
    tables = {
        **TASK,
        "study": {
            "setting": [
                {"preset": "frugal"},
                {"preset": "frugal", "share": 0.005},
                {"preset": "frugal", "share": 0.02},
            ]
        },
    }
    settings = parse_study(tables).settings
    assert [(setting.name, setting.folder) for setting in settings] == [
        ("frugal", "frugal"),
        ("frugal, 0.5 %", "frugal-0.5"),
        ("frugal, 2 %", "frugal-2"),
    ]
