"""What a run leaves on disk: the files of the contract, complete after every round, the same bytes every time."""

import json
import tomllib
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fedlama
from fedlama import InputError
from fedlama.base import RunError
from fedlama.run import resolve as resolving
from fedlama.run import tensorboard
from fedlama.run.config import Config, load_config, parse_config
from fedlama.run.default_models import model_builder
from fedlama.run.directory import RunDirectory
from fedlama.run.execute import execute
from fedlama.run.files import locked, write_atomically
from fedlama.run.recorded import RecordedRun
from fedlama.run.resolve import load_data, resolve
from fedlama.study.runs import find_runs, load_run
from fedlama.training import LayerSummary

RECORD_KEYS = {
    *("round", "step", "cycle", "due", "intervals", "discrepancy", "loss", "accuracy"),
    *("uplink_bytes", "downlink_bytes", "excluded"),
}
SUMMARY_KEYS = {
    *(
        "accuracy",
        "loss",
        "cost",
        "uplink_bytes",
        "downlink_bytes",
        "iterations",
        "seed",
        "seconds",
        "layers",
    ),
}
LAYER_KEYS = {"name", "size", "adaptive", "aggregations", "interval"}
SAME_EVERY_TIME = ("config.toml", "rounds.jsonl", "checkpoint/model.safetensors")


def tiny(**sections) -> Config:
    tables = {
        "data": {"name": "digits"},
        "partition": {"clients": 5},
        "participation": {"active": 3},
        "policy": {"base_interval": 2, "increase_factor": 2},
        "local": {"learning_rate": 0.1, "batch_size": 16},
        "train": {"iterations": 14, "evaluate_every": 8},
        "output": {"tensorboard": False},
    }
    return parse_config({**tables, **sections})


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "deep" / "run"
    execute(tiny(), path, workers=1)
    return path


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    """A finished run to break."""
    path = tmp_path / "run"
    for source in finished.rglob("*"):
        if source.is_file():
            target = path / source.relative_to(finished)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    return path


# The files of the contract.


def test_a_run_directory_has_the_files_of_the_contract_and_no_others(finished):
    found = {
        str(path.relative_to(finished))
        for path in finished.rglob("*")
        if path.is_file()
    }
    written = {
        "config.toml",
        "partition.json",
        "rounds.jsonl",
        "timings.jsonl",
        "summary.json",
    }
    assert found == written | {"checkpoint/model.safetensors"}


def test_a_record_has_the_keys_of_the_contract(finished):
    for record in lines(finished / "rounds.jsonl"):
        assert set(record) >= RECORD_KEYS
        assert len(record["intervals"]) == len(record["discrepancy"]) > 0
        assert record["excluded"] == []


def test_records_tell_the_run_round_by_round(finished):
    records = lines(finished / "rounds.jsonl")
    assert [record["round"] for record in records] == list(range(1, len(records) + 1))
    assert [record["step"] for record in records] == [2, 4, 6, 8, 10, 12, 14]
    assert [record["cycle"] for record in records] == [1, 1, 2, 2, 3, 3, 4]
    evaluated = [record["step"] for record in records if record["accuracy"] is not None]
    # Cycle ends that pass a multiple of evaluate_every = 8, and the end
    assert evaluated == [8, 14]


def test_the_layers_due_are_those_whose_discrepancy_was_measured(finished):
    names = [
        layer["name"]
        for layer in json.loads((finished / "summary.json").read_text())["layers"]
    ]
    for record in lines(finished / "rounds.jsonl"):
        measured = [
            name
            for name, d in zip(names, record["discrepancy"], strict=True)
            if d is not None
        ]
        assert record["due"] == measured
    assert any(
        len(record["due"]) < len(names) for record in lines(finished / "rounds.jsonl")
    ), "a weak test"


def test_the_summary_has_the_keys_of_the_contract(finished):
    summary = json.loads((finished / "summary.json").read_text())
    assert set(summary) >= SUMMARY_KEYS
    assert all(set(layer) >= LAYER_KEYS for layer in summary["layers"])
    assert summary["iterations"] == 14
    assert summary["seed"] == 0
    assert summary["seconds"] > 0
    assert 0 <= summary["accuracy"] <= 1


def test_the_records_add_up_to_the_summary(finished):
    summary, records = (
        json.loads((finished / "summary.json").read_text()),
        lines(finished / "rounds.jsonl"),
    )
    assert sum(record["uplink_bytes"] for record in records) == summary["uplink_bytes"]
    assert (
        sum(record["downlink_bytes"] for record in records) == summary["downlink_bytes"]
    )
    assert records[-1]["accuracy"] == summary["accuracy"]
    for layer in summary["layers"]:
        assert layer["aggregations"] == sum(
            layer["name"] in record["due"] for record in records
        )
    # C of Eq. 5
    aggregated = sum(
        layer["size"] * layer["aggregations"] for layer in summary["layers"]
    )
    everything = sum(layer["size"] for layer in summary["layers"]) * (14 // 2)
    assert summary["cost"] == pytest.approx(aggregated / everything)
    # 3 clients, 4 bytes a number, no BatchNorm
    assert summary["uplink_bytes"] == 3 * 4 * aggregated


def test_the_config_is_resolved_and_names_versions(finished):
    stored = tomllib.loads((finished / "config.toml").read_text())
    assert stored["model"]["name"] == "small_cnn"
    assert stored["partition"]["kind"] == "iid"
    assert stored["partition"]["clients"] == 5
    assert stored["participation"]["window"] == 4
    assert {"fedlama", "python", "torch", "numpy"} <= set(stored["versions"])
    assert stored["versions"]["torch"] == torch.__version__


def test_timings_have_a_line_for_each_round(finished):
    timings = lines(finished / "timings.jsonl")
    assert [entry["round"] for entry in timings] == [1, 2, 3, 4, 5, 6, 7]
    seconds = [entry["seconds"] for entry in timings]
    assert seconds == sorted(seconds)


def test_the_weights_give_the_accuracy_of_the_summary(finished):
    data = load_data("digits")
    model = model_builder("small_cnn", data)()
    model.load_state_dict(load_file(finished / "checkpoint" / "model.safetensors"))
    with torch.no_grad():
        outputs = model.eval()(data.inputs(data.x_test))
    summary = json.loads((finished / "summary.json").read_text())
    assert (outputs.argmax(1) == data.y_test).double().mean().item() == pytest.approx(
        summary["accuracy"]
    )
    loss = torch.nn.functional.cross_entropy(outputs, data.y_test).item()
    assert loss == pytest.approx(summary["loss"], rel=1e-5)


# Again and again.


def test_only_timings_and_seconds_vary_from_run_to_run(finished, tmp_path):
    execute(tiny(), tmp_path / "again", workers=1)
    for name in SAME_EVERY_TIME:
        assert (tmp_path / "again" / name).read_bytes() == (
            finished / name
        ).read_bytes(), name
    first, second = (
        json.loads((path / "summary.json").read_text())
        for path in (finished, tmp_path / "again")
    )
    assert {**first, "seconds": None} == {**second, "seconds": None}


def test_another_seed_gives_another_run(finished, tmp_path):
    execute(tiny(seed=1), tmp_path / "other", workers=1)
    assert (tmp_path / "other" / "rounds.jsonl").read_bytes() != (
        finished / "rounds.jsonl"
    ).read_bytes()


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {
            "policy": {
                "kind": "fedavg",
                "base_interval": 4,
                "increase_factor": 3,
                "rule": "released",
            }
        },
        {
            "partition": {"kind": "dirichlet", "clients": 5, "alpha": 0.3},
            "train": {"iterations": 4},
        },
    ],
)
def test_a_run_directorys_own_config_can_be_run_again(sections, tmp_path):
    execute(tiny(**sections), tmp_path / "first", workers=1)
    config = load_config(tmp_path / "first" / "config.toml")
    assert resolve(config).config == config
    execute(config, tmp_path / "second", workers=1)
    for name in SAME_EVERY_TIME:
        assert (tmp_path / "second" / name).read_bytes() == (
            tmp_path / "first" / name
        ).read_bytes(), name


def test_the_config_of_a_run_on_natural_clients_can_be_run_again(monkeypatch):
    digits = load_data("digits")
    by_writer = replace(
        digits, name="by-writer", clients=torch.arange(len(digits.y_train)) % 40
    )
    monkeypatch.setattr(resolving, "load_data", lambda name, options: by_writer)
    config = tiny(partition={})
    resolved = resolve(config).config
    dealt, again = (
        settings.partition.build(True).assign(by_writer, 0)
        for settings in (config, resolved)
    )
    assert dealt.order.tolist() == again.order.tolist()


def test_versions_of_another_machine_do_not_matter(finished):
    config = load_config(finished / "config.toml", ["versions.torch=0.0.1"])
    assert resolve(config).config == load_config(finished / "config.toml")


# While it runs.


def test_a_record_is_on_disk_before_the_observers_see_it(tmp_path):
    seen = []

    def observer(record):
        stored = lines(tmp_path / "run" / "rounds.jsonl")
        seen.append(len(stored))
        assert stored[-1]["round"] == record.round
        assert load_run(tmp_path / "run").summary is None

    result = execute(tiny(), tmp_path / "run", [observer], workers=1)
    assert seen == list(range(1, len(result.records) + 1))
    assert load_run(tmp_path / "run").summary is not None


def test_what_was_finished_stays_when_the_run_fails(tmp_path):
    # x ← x − 0.1 · (g + 100 · x) multiplies the weights by −9 a step, until they are no numbers any more
    config = tiny(
        local={"learning_rate": 0.1, "weight_decay": 100.0}, train={"iterations": 200}
    )
    with pytest.raises(
        fedlama.RunError, match=r"not finite in round \d+.*learning_rate"
    ):
        execute(config, tmp_path / "run", workers=1)
    run = load_run(tmp_path / "run")
    assert len(run.records) > 1
    assert run.summary is None


def overflow_in_the_last_round(path: Path) -> None:
    """Finite weights, but so large that the test loss is NaN."""
    sections = {
        "policy": {"kind": "fedavg", "base_interval": 2},
        "train": {"iterations": 2},
    }
    execute(tiny(local={"learning_rate": 1e8}, **sections), path, workers=1)


def test_a_model_that_overflowed_in_the_last_round_is_no_finished_run(tmp_path):
    with pytest.raises(fedlama.RunError):
        overflow_in_the_last_round(tmp_path / "run")


def test_what_is_written_is_json_for_every_reader(tmp_path):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    sections = {
        "policy": {"kind": "fedavg", "base_interval": 1},
        "train": {"iterations": 20},
    }
    with suppress(fedlama.RunError):  # overflows after some rounds that are written
        execute(
            tiny(local={"learning_rate": 0.1, "weight_decay": 100.0}, **sections),
            tmp_path / "run",
            workers=1,
        )
    for name in ("rounds.jsonl", "timings.jsonl"):
        for line in (tmp_path / "run" / name).read_text().splitlines():
            json.loads(line, parse_constant=refuse)


# A place that is taken, or cannot be.


def test_a_directory_that_holds_a_run_is_refused_and_left_alone(copied):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with pytest.raises(
        InputError,
        match=r"already holds a run \(--resume continues it\): choose another --out",
    ):
        execute(tiny(), copied, workers=1)
    assert {
        path: path.read_bytes() for path in copied.rglob("*") if path.is_file()
    } == before


def test_a_run_is_replaced_when_asked(copied):
    (copied / "report.html").write_text("of the old run")
    directory = RunDirectory.create(copied, resolve(tiny(seed=7)).config, replace=True)
    assert {path.name for path in copied.rglob("*") if path.is_file()} == {
        "config.toml"
    }
    assert load_run(directory.path).seed == 7


def test_tensorboard_events_of_a_replaced_run_are_gone(copied):
    (copied / "tensorboard").mkdir()
    (copied / "tensorboard" / "events.out.tfevents.1.host.1.0").write_bytes(b"old")
    RunDirectory.create(copied, resolve(tiny()).config, replace=True)
    assert not list(copied.rglob("events*"))


def test_a_folder_with_other_files_will_do(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    execute(tiny(train={"iterations": 2}), tmp_path, workers=1)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert load_run(tmp_path).summary is not None


def test_somebodys_report_in_a_folder_without_a_run_is_not_deleted(tmp_path):
    (tmp_path / "report.html").write_text("somebody's work")
    with suppress(InputError):  # refusing the folder is as good
        RunDirectory.create(tmp_path, resolve(tiny()).config)
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize("place", ["file", "file/run", "file/deep/run"])
def test_a_file_in_the_way_is_named(tmp_path, place):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError) as caught:
        execute(tiny(), tmp_path / place, workers=1)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / place))
    assert (
        "is a file; a run needs a folder" in message or "cannot be written" in message
    )
    assert (tmp_path / "file").read_text() == "mine"


def test_a_place_where_nothing_can_be_written():
    with pytest.raises(
        InputError, match=r"^/dev/null/run: cannot be written \(Not a directory\)$"
    ):
        RunDirectory.create(Path("/dev/null/run"), resolve(tiny()).config)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"name": "no_such_model"}}, "model.name"),
        ({"partition": {"clients": 100_000}}, "partition.clients"),
        ({"participation": {"window": 3}}, "participation.window"),
        ({"participation": {"active": 6}}, "participation.active"),
        ({"model": {"adaptive": ["no.such.layer"]}}, "no.such.layer"),
        ({"train": {"iterations": 2, "device": "abacus"}}, "abacus"),
    ],
)
def test_a_wrong_config_does_not_take_its_directory(sections, message, tmp_path):
    with pytest.raises(InputError, match=message):
        execute(tiny(**sections), tmp_path / "run", workers=1)
    assert not (tmp_path / "run").exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(
        RunError, match=r"summary.json cannot be written: no space left"
    ):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


# Reading it back.


def test_a_run_reads_back(finished):
    run = load_run(finished)
    assert isinstance(run, RecordedRun)
    assert run.path == finished
    assert run.label == "FedLAMA(2, 2)"
    assert run.seed == 0
    assert len(run.records) == 7
    assert run.summary is not None
    assert run.summary.iterations == 14


def test_half_a_last_line_is_ignored(copied):
    path = copied / "rounds.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    assert [record.round for record in load_run(copied).records] == [1, 2, 3, 4, 5, 6]


def test_a_run_without_records_or_summary_is_a_run(copied):
    (copied / "rounds.jsonl").unlink()
    (copied / "summary.json").unlink()
    run = load_run(copied)
    assert run.records == []
    assert run.summary is None


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("summary.json", b'{"accuracy": 0.5', "summary.json"),
        ("summary.json", b"", "summary.json"),
        ("summary.json", b"\xff\xfe", "summary.json"),
        ("rounds.jsonl", b'{"round": 1}\n', "line 1 is not one of a run: step"),
        ("rounds.jsonl", b"[" * 100_000 + b"\n", "line 1 is not JSON"),
        ("summary.json", b"[" * 100_000, "summary.json"),
        ("summary.json", b'{"accuracy": 0.5}', "is not one of a run: loss"),
        ("rounds.jsonl", b"\n", "line 1 is not JSON"),
        ("rounds.jsonl", b"\xff\xfe\n", "rounds.jsonl"),
        ("config.toml", b"seed = ", "is not TOML"),
        ("config.toml", b"\xff\xfe", "is not TOML"),
    ],
)
def test_a_broken_file_is_named(copied, name, content, said, request):
    (copied / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_run(copied)
    message = str(caught.value)
    assert str(copied / name) in message
    assert said in message
    assert len(message.splitlines()) == 1


def test_a_config_that_is_not_ours_is_named(tmp_path):
    (tmp_path / "config.toml").write_text("title = 'of another program'\n")
    with pytest.raises(InputError, match=r"config\.toml"):
        assert load_run(tmp_path).label


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(
        InputError, match=r"is not a run directory: it has no config\.toml"
    ):
        load_run(tmp_path)


def test_find_runs_looks_below_sorts_and_takes_each_once(tmp_path, copied):
    for name in ("b/seed1", "b/seed0", "a"):
        RunDirectory.create(tmp_path / "all" / name, resolve(tiny()).config)
        (tmp_path / "all" / name / "rounds.jsonl").touch()
    found = [
        run.path
        for run in find_runs([tmp_path / "all", tmp_path / "all" / "a", copied])
    ]
    folders = [
        tmp_path / "all" / "a",
        tmp_path / "all" / "b" / "seed0",
        tmp_path / "all" / "b" / "seed1",
        copied,
    ]
    assert found == folders


def test_find_runs_names_a_folder_that_is_not_there_or_holds_none(tmp_path, finished):
    with pytest.raises(InputError, match=r"nope: there is no such folder"):
        find_runs([finished, tmp_path / "nope"])
    with pytest.raises(
        InputError, match=r"holds no run: no config\.toml .*in it or below it"
    ):
        find_runs([finished, tmp_path])


# TensorBoard.


@pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="needs fedlama[tensorboard]"
)
def test_tensorboard_gets_the_scalars(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    execute(tiny(output={"tensorboard": True}), tmp_path / "run", workers=1)
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    records = load_run(tmp_path / "run").records
    losses = [(event.step, event.value) for event in events.Scalars("loss/training")]
    assert losses == [(record.step, pytest.approx(record.loss)) for record in records]
    accuracies = [
        (event.step, event.value) for event in events.Scalars("accuracy/test")
    ]
    evaluated = [record for record in records if record.accuracy is not None]
    assert accuracies == [
        (record.step, pytest.approx(record.accuracy)) for record in evaluated
    ]
    summary = load_run(tmp_path / "run").summary
    assert summary is not None
    for layer in summary.layers:  # 32 bits per number: nothing is coded
        (sent,) = events.Scalars(f"layers/uplink_bytes/{layer.name}")
        assert (sent.step, sent.value) == (records[-1].step, layer.uplink_bytes)
        (rate,) = events.Scalars(f"layers/bits_per_number/{layer.name}")
        assert rate.value == 32


def test_bits_per_number_by_hand():
    # 10 numbers sent twice by 3 clients in 90 bytes: 720 bits for 60 numbers
    layer = LayerSummary("a", 10, True, aggregations=2, interval=6, uplink_bytes=90)
    assert layer.bits_per_number(clients=3) == 12
    assert replace(layer, aggregations=0).bits_per_number(clients=3) is None
    assert replace(layer, uplink_bytes=None).bits_per_number(clients=3) is None


def test_tensorboard_can_be_switched_off(finished):
    assert load_config(finished / "config.toml").output.tensorboard is False
    assert not (finished / "tensorboard").exists()


def test_a_machine_without_tensorboard_runs_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    execute(
        tiny(output={"tensorboard": True}, train={"iterations": 2}),
        tmp_path / "run",
        workers=1,
    )
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert load_run(tmp_path / "run").summary is not None


def test_models_with_shared_and_whole_number_tensors_are_stored(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(64, 64)
            self.second = torch.nn.Linear(64, 64)
            self.second.weight = self.first.weight
            self.norm = torch.nn.BatchNorm1d(64)
            self.last = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.last(self.norm(self.second(self.first(x.flatten(1)))))

    result = fedlama.simulate(
        Tied,
        fedlama.data.digits(),
        policy=fedlama.FedAvg(2),
        local=fedlama.SGD(0.1, 16),
        partition=fedlama.IID(3),
        iterations=4,
    )
    RunDirectory.create(tmp_path / "run", resolve(tiny()).config).finish(result)
    stored = load_file(tmp_path / "run" / "checkpoint" / "model.safetensors")
    assert set(stored) == set(result.model.state_dict())
    for name, tensor in result.model.state_dict().items():
        assert torch.equal(stored[name], tensor), name


@pytest.mark.parametrize("last", [7200.0, "nonsense", 1e999])
def test_the_seconds_of_a_run_that_is_resumed_go_on(copied, last):
    timings = copied / "timings.jsonl"
    # As if the rounds before the break had taken an hour each; the last line that is kept may be damaged
    hours = [
        {"round": 1, "seconds": 3600.0},
        {"round": 2, "seconds": last},
        {"round": 3, "seconds": 9e9},
    ]
    timings.write_text("".join(json.dumps(one) + "\n" for one in hours))
    directory = RunDirectory(copied, load_config(copied / "config.toml"), resume=True)
    records = directory.continue_after(2)
    directory.record(replace(records[-1], round=3))
    seconds = lines(timings)[-1]["seconds"]
    expected = 7200 if last == 7200.0 else 3600
    assert expected <= seconds < expected + 600


@pytest.mark.parametrize("option", ["--out", "--checkpoints"])
def test_a_place_that_will_not_do_names_what_the_user_wrote(tmp_path, option):
    """A study's unfinished runs may be kept in a folder that another option names."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(InputError, match=rf"choose another {option}$"),
        locked(tmp_path / "file" / "run", option=option),
    ):
        pytest.fail("it was locked")
    with (
        locked(tmp_path),
        pytest.raises(InputError, match=rf"choose another {option}$"),
        locked(tmp_path, option=option),
    ):
        pytest.fail("both hold it")
    with pytest.raises(InputError, match=rf"choose another {option}$"):
        RunDirectory(tmp_path / "file", tiny(), option=option)
