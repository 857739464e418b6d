"""What a study will take: counted by hand, estimated from speeds chosen here, printed before anything is spent."""

import io
import math
import time
from dataclasses import replace

import pytest

from fedlama.base.times import about, rough_time
from fedlama.run.progress import sent_share
from fedlama.run.resolve import resolve
from fedlama.study import plan as plans
from fedlama.study.phase_times import timed_phases
from fedlama.study.plan import (
    amount_text,
    announce,
    counted,
    estimated,
    planned,
    time_text,
)
from fedlama.study.progress import StudyDisplay, baselines_of
from fedlama.study.sitting import Sitting
from fedlama.study.speed import (
    Amount,
    Speed,
    amount_of,
    first_look,
    kind_of,
    measure,
    measured,
    total_seconds,
)
from fedlama.study.study_file import parse_study
from fedlama.training.phases import phase
from fedlama.training.records import Record

TABLES = {
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "partition": {"kind": "iid", "clients": 12},
    "participation": {"active": 4},
    "local": {"batch_size": 16},
    "train": {"iterations": 48, "evaluate_every": 24},
    "output": {"tensorboard": False},
    "study": {
        "seeds": [0, 1],
        "baseline": "FedAvg(6)",
        "setting": [
            {"policy": {"kind": "fedavg", "base_interval": 6}},
            {"policy": {"kind": "fedavg", "base_interval": 24}},
            {
                "name": "coded",
                "policy": {"kind": "fedavg", "base_interval": 6},
                "uplink": {"codec": "cast"},
            },
        ],
    },
}


@pytest.fixture
def study():
    return parse_study(TABLES)


def record(step, cost):
    return Record(
        1,
        step,
        1,
        ["w"],
        [6],
        [None],
        1.0,
        accuracy=0.5,
        uplink_bytes=1,
        downlink_bytes=1,
        cost=cost,
    )


def test_runs_and_client_steps_are_counted(study, tmp_path):
    plan, examples = counted([(study, tmp_path)], 2)
    assert (len(plan.missing), plan.pilots, plan.finished, plan.processes) == (
        6,
        0,
        0,
        2,
    )
    assert plan.client_steps == 6 * 48 * 4
    assert len(examples) == 2  # two FedAvg are of one kind, the code is another
    assert amount_text(plan) == "6 runs to train, 1,152 client steps in all"


def test_pilots_are_counted_beside_the_runs(tmp_path):
    tables = {
        **TABLES,
        "study": {
            **TABLES["study"],
            "learning_rates": [0.1, 0.2],
            "pilot_iterations": 24,
        },
    }
    plan, _ = counted([(parse_study(tables), tmp_path)], 1)
    assert plan.client_steps == 6 * 48 * 4 + 6 * 24 * 4
    assert amount_text(plan).startswith("6 runs and 6 pilots to train, ")


def test_what_is_finished_and_what_has_begun_is_not_counted_again(study, tmp_path):
    first, second, *_ = study.cells({})
    (tmp_path / first.path).mkdir(parents=True)
    (tmp_path / first.path / "summary.json").write_text("{}")
    kept = tmp_path / second.path / "checkpoint"
    kept.mkdir(parents=True)
    for name in ("step-000000012.json", "step-000000024.json", "step-other.json"):
        (kept / name).write_text("{}")
    plan, _ = counted([(study, tmp_path)], 1)
    assert (len(plan.missing), plan.finished) == (5, 1)
    assert plan.client_steps == 4 * (4 * 48 + 24)
    assert amount_text(plan).endswith("; 1 run is finished already")


def test_what_has_begun_counts_where_checkpoints_are_kept(study, tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "kept"
    first, second, *_ = study.cells({})
    at_home = out / first.path / "checkpoint"
    at_home.mkdir(parents=True)
    (at_home / "step-000000012.json").write_text("{}")
    for cell in (first, second):
        kept = elsewhere / cell.path / "checkpoint"
        kept.mkdir(parents=True)
        (kept / "step-000000024.json").write_text("{}")

    without, _ = counted([(study, out)], 1)
    assert without.client_steps == 4 * (6 * 48 - 12)
    sittings = {out: Sitting(checkpoints=elsewhere)}
    plan, _ = counted([(study, out)], 1, sittings)
    assert plan.client_steps == 4 * (6 * 48 - 2 * 24)
    # What was begun at home is taken along where nothing waits elsewhere
    empty = {out: Sitting(checkpoints=tmp_path / "empty")}
    plan, _ = counted([(study, out)], 1, empty)
    assert plan.client_steps == 4 * (6 * 48 - 12)


def test_two_studies_share_the_runs_of_a_folder(study, tmp_path):
    assert len(planned([(study, tmp_path), (study, tmp_path)])) == 6
    assert len(planned([(study, tmp_path), (study, tmp_path / "other")])) == 12


def test_a_run_is_steps_exchanges_and_evaluations(study):
    short, long, _ = (resolve(setting.config) for setting in study.settings)
    tested = len(short.data.x_test)
    assert amount_of(short) == Amount(
        client_steps=4 * 48, exchanges=4 * 8, tested=2 * tested
    )
    assert amount_of(long) == Amount(
        client_steps=4 * 48, exchanges=4 * 2, tested=2 * tested
    )
    assert amount_of(short, taken=24) == Amount(
        client_steps=4 * 24, exchanges=4 * 4, tested=tested
    )
    assert Amount(10, 4, 100).seconds(
        Speed(step=1.0, exchange=0.5, sample=0.01)
    ) == pytest.approx(13.0)


def test_learning_rates_and_seeds_do_not_make_a_kind(study):
    config = study.settings[0].config
    local = config.local.model_copy(update={"learning_rate": 0.7, "decay_steps": [12]})
    assert kind_of(config.model_copy(update={"local": local, "seed": 9})) == kind_of(
        config
    )
    other = config.local.model_copy(update={"batch_size": 8})
    assert kind_of(config.model_copy(update={"local": other})) != kind_of(config)


def test_seconds_are_divided_by_the_processes(study, tmp_path):
    plan, examples = counted([(study, tmp_path)], 2)
    plain, coded = examples
    speeds = {
        plain: Speed(step=1.0, exchange=0.0, sample=0.0),
        coded: Speed(step=2.0, exchange=0.0, sample=0.0),
    }
    assert estimated(plan, speeds) == pytest.approx(4 * 48 * (4 * 1.0 + 2 * 2.0) / 2)
    # another method with the same data and model counts as the slowest that was measured
    assert estimated(plan, {plain: Speed(1.0, 0.0, 0.0)}) == pytest.approx(
        4 * 48 * 6 / 2
    )
    assert estimated(plan, {}) is None


def test_a_task_that_was_not_measured_has_no_estimate(study):
    config = study.settings[0].config
    other = config.model_copy(
        update={"model": config.model.model_copy(update={"name": "small_cnn"})}
    )
    speeds = {kind_of(config): Speed(1.0, 0.0, 0.0)}
    assert total_seconds([(kind_of(config), Amount(3, 0, 0))], speeds) == pytest.approx(
        3.0
    )
    assert total_seconds([(kind_of(other), Amount(3, 0, 0))], speeds) is None


def test_a_few_steps_are_really_measured(study):
    run = resolve(study.settings[2].config)
    look = first_look(run)
    here = measure(run, look)
    (elsewhere,) = measured([run], budget=60.0)
    for speed in (look, here, elsewhere):
        for seconds in (speed.step, speed.exchange, speed.sample):
            assert math.isfinite(seconds)
            assert seconds > 0


def test_a_measurement_ends_in_time(study, monkeypatch):
    monkeypatch.setattr("fedlama.study.speed.first_look", lambda run: time.sleep(60))
    assert measured([resolve(study.settings[0].config)], budget=0.2) == [None]


def test_a_first_look_is_kept_where_time_runs_out(study, monkeypatch):
    look = Speed(1.0, 2.0, 3.0)
    monkeypatch.setattr("fedlama.study.speed.first_look", lambda run: look)
    monkeypatch.setattr("fedlama.study.speed.measure", lambda run, look: time.sleep(60))
    run = resolve(study.settings[0].config)
    assert measured([run, run], budget=5.0) == [look, look]


def test_a_model_that_takes_long_is_looked_at_once(study, monkeypatch):
    monkeypatch.setattr(
        "fedlama.study.speed._timed",
        lambda run, **how: pytest.fail("it was looked at again"),
    )
    look = Speed(step=10.0, exchange=0.0, sample=0.0)
    assert measure(resolve(study.settings[0].config), look) == look


def test_what_cannot_be_measured_is_left_to_the_run(study, monkeypatch):
    def fail(run):
        raise ValueError("this model is broken")

    monkeypatch.setattr("fedlama.study.speed.first_look", fail)
    assert measured([resolve(study.settings[0].config)], budget=60.0) == [None]


def test_the_plan_is_printed_before_anything_is_written(study, tmp_path, monkeypatch):
    printed = io.StringIO()

    def speeds_of(runs):
        # The counts do not wait for the measurement
        assert "6 runs to train" in printed.getvalue()
        return [Speed(step=37.5, exchange=0.0, sample=0.0) for _ in runs]

    monkeypatch.setattr(plans, "measured", speeds_of)
    monkeypatch.setattr(plans, "cpu_type", lambda: "a processor")
    announce([(study, tmp_path / "out")], 2, printed)
    first, second = printed.getvalue().splitlines()
    assert first == "plan: 6 runs to train, 1,152 client steps in all"
    assert (
        second
        == "plan: about 6.0 h on this machine (2 processes; a processor), after a few measured steps"
    )
    assert not (tmp_path / "out").exists()


def test_a_finished_study_measures_nothing(study, tmp_path, monkeypatch):
    monkeypatch.setattr(
        plans, "measured", lambda runs: pytest.fail("there is nothing to measure")
    )
    for cell in study.cells({}):
        (tmp_path / cell.path).mkdir(parents=True)
        (tmp_path / cell.path / "summary.json").write_text("{}")
    printed = io.StringIO()
    announce([(study, tmp_path)], 1, printed)
    assert printed.getvalue() == "plan: nothing to train: 6 runs are finished already\n"


def test_an_unknown_time_is_said_to_be_unknown(study, tmp_path):
    plan, _ = counted([(study, tmp_path)], 1)
    assert "could not be measured" in time_text(plan)


@pytest.mark.parametrize(
    ("seconds", "sentence", "cell"),
    [
        (0.0, "under a minute", "< 1 min"),
        (59.9, "under a minute", "< 1 min"),
        (90.0, "about 2 min", "2 min"),
        (3600.0, "about 60 min", "60 min"),
        (9000.0, "about 2.5 h", "2.5 h"),
        (10 * 86400.0, "about 10 days", "10 days"),
    ],
)
def test_rough_times(seconds, sentence, cell):
    assert about(seconds) == sentence
    assert rough_time(seconds) == cell


def test_what_was_sent_is_a_share_of_the_baselines():
    # FedAvg(24) has averaged all of it twice in 48 steps, FedAvg(6) eight times
    assert sent_share(record(48, 1.0), own_interval=24, interval=6) == pytest.approx(
        0.25
    )
    assert sent_share(record(48, 0.4), own_interval=6, interval=6) == pytest.approx(0.4)
    # what coded messages took counts, not how often they were sent
    coded = replace(record(48, 1.0), uplink_share=0.01)
    assert sent_share(coded, own_interval=6, interval=6) == pytest.approx(0.01)
    # after a step too many, one and two more rounds are counted
    assert sent_share(record(49, 1.0), own_interval=24, interval=6) == pytest.approx(
        3 / 9
    )


def test_progress_says_of_what_a_cost_is_a_share_and_never_0_min(study, tmp_path):
    lines = io.StringIO()
    studies = [(study, tmp_path)]
    cells = planned(studies)
    display = StudyDisplay(
        len(cells), 48 * len(cells), None, lines, baselines_of(studies)
    )
    for cell in cells:
        display(cell, record(48, 1.0))
        display(cell, "done")
    by_setting = {line.split(" · ")[1]: line for line in lines.getvalue().splitlines()}
    assert "sent 100 % of FedAvg(6)" in by_setting["FedAvg(6), seed 0: done"]
    assert "sent 25 % of FedAvg(6)" in by_setting["FedAvg(24), seed 0: done"]
    *others, last = lines.getvalue().splitlines()
    assert "left" not in last
    for line in others:
        assert line.endswith("under a minute left")


def test_without_a_fedavg_as_baseline_a_cost_is_of_the_own_interval(study, tmp_path):
    options = study.options.model_copy(update={"baseline": None})
    assert baselines_of([(study, tmp_path)]) == {
        "FedAvg(6)": 6,
        "FedAvg(24)": 6,
        "coded": 6,
    }
    assert baselines_of([(type(study)(study.settings, options), tmp_path)]) == {}
    lines = io.StringIO()
    cell = planned([(study, tmp_path)])[1]
    display = StudyDisplay(1, 48, None, lines)
    display(cell, record(48, 1.0))
    display(cell, "done")
    assert "sent 100 % of FedAvg(24)" in lines.getvalue()


def test_fedlama_with_factor_one_is_a_fedavg_as_baseline(tmp_path):
    policy = {"base_interval": 3, "increase_factor": 1}
    tables = {
        "data": {"name": "digits"},
        "train": {"iterations": 6},
        "study": {"baseline": "one", "setting": [{"name": "one", "policy": policy}]},
    }
    assert baselines_of([(parse_study(tables), tmp_path)]) == {"one": 3}


def test_progress_names_a_metric_as_it_is_called_and_small_shares_with_digits(
    study, tmp_path
):
    lines = io.StringIO()
    cell = planned([(study, tmp_path)])[0]
    display = StudyDisplay(1, 48, None, lines)
    display(
        cell,
        replace(
            record(48, 1.0),
            accuracy=None,
            metrics={"RMSE": 1.23456},
            uplink_share=0.00971,
        ),
    )
    display(cell, "done")
    assert (
        lines.getvalue()
        == "1/1 runs · FedAvg(6), seed 0: done · RMSE 1.235 · sent 0.97 % of FedAvg(6)\n"
    )


def test_steps_before_a_resume_took_none_of_this_time(study, tmp_path, monkeypatch):
    """Two runs of 48 steps: one goes on at step 40 at once, and both then take six steps a minute together."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    lines = io.StringIO()
    first, second, *_ = planned([(study, tmp_path)])
    display = StudyDisplay(2, 96, None, lines)
    clock[0] = 70.0
    display(first, replace(record(40, 1.0), round=7))
    clock[0] = 190.0
    display(second, record(12, 1.0))
    resumed, later = lines.getvalue().splitlines()
    assert "left" not in resumed
    # 12 steps took the 2 minutes since the first record, and 44 are left
    assert later.endswith(" · about 7 min left")


def test_a_machine_with_other_work_is_not_a_slower_one():
    with timed_phases() as seconds, phase("train"):
        # As a process waits for its turn
        time.sleep(0.2)
    assert seconds["train"] < 0.1
    # A processor rests while a GPU works
    with timed_phases(on_gpu=True) as seconds, phase("train"):
        time.sleep(0.2)
    assert seconds["train"] >= 0.2
