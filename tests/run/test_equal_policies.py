"""FedLAMA with factor 1 is FedAvg, also for run directories, reports and averagers; each keeps what was written."""

import pytest

import fedlama
from doors.harness import run_in_folder
from fedlama.averager.arguments import as_set_today, settings_of
from fedlama.report.numbers.settings import setting_runs
from fedlama.run.toml import read_toml
from fedlama.server import Mean
from fedlama.study.runs import find_runs

SAME = [fedlama.FedAvg(2), fedlama.FedLAMA(2, 1), fedlama.FedLAMA(2, 1, "released", 3)]
DERIVED = type("Derived", (fedlama.FedLAMA,), {})


class StopError(Exception):
    """Ends a run in the middle."""


def stop_in_the_middle(record):
    if record.step == 18:
        raise StopError


@pytest.mark.parametrize(
    ("first", "second"), [(SAME[0], SAME[1]), (SAME[1], SAME[0]), (SAME[2], SAME[0])]
)
def test_a_run_directory_of_one_goes_on_with_the_other(tmp_path, first, second):
    folder = tmp_path / "run"
    with pytest.raises(StopError):
        run_in_folder(folder, [stop_in_the_middle], policy=first, iterations=24)
    written = read_toml(folder / "config.toml")["policy"]
    again = []
    run_in_folder(folder, [again.append], policy=second, iterations=24, resume=True)
    assert [record.step for record in again] == [18, 20, 22, 24]
    # A run directory keeps what was written: earlier versions can read it.
    kind = "fedavg" if first is SAME[0] else "fedlama"
    assert written["kind"] == kind
    assert read_toml(folder / "config.toml")["policy"] == written


def test_other_factors_are_other_runs(tmp_path):
    run_in_folder(tmp_path / "run", policy=fedlama.FedAvg(2), iterations=12)
    with pytest.raises(fedlama.InputError, match="increase_factor"):
        run_in_folder(
            tmp_path / "run",
            policy=fedlama.FedLAMA(2, 3),
            iterations=12,
            resume=True,
        )


def test_a_report_makes_one_setting_of_them(tmp_path):
    for number, policy in enumerate(SAME):
        folder = tmp_path / str(number)
        run_in_folder(folder, policy=policy, iterations=12, seed=number)
    (setting,) = setting_runs(find_runs([tmp_path]))
    assert setting.label == "FedAvg(2)"
    assert len(setting.runs) == 3


def test_ranks_with_either_are_asked_for_the_same():
    first, *others = [settings_of(policy, 0, Mean(), None) for policy in SAME]
    for other in others:
        assert other == first
    assert settings_of(DERIVED(2, 1), 0, Mean(), None) != first


def test_a_state_of_an_averager_of_an_earlier_version_still_fits():
    # It had what the averager was built with.
    before = {
        "base_interval": 2,
        "increase_factor": 1,
        "rule": "released",
        "warmup_rounds": 3,
        "policy": "FedLAMA(base_interval=2, increase_factor=1, rule='released', warmup_rounds=3)",
        "warmup_steps": 0,
        "server": "Mean()",
        "uplink": "none",
    }
    assert as_set_today(before) == settings_of(SAME[0], 0, Mean(), None)
    other = before | {"increase_factor": 4}
    assert as_set_today(other) == other
