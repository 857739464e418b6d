"""A run that is killed and resumed ends with the bits of one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedlama.base import InputError, RunError
from fedlama.run.config import parse_config
from fedlama.run.execute import execute
from fedlama.study.runs import load_run

COMPARED = ("rounds.jsonl", "config.toml", "checkpoint/model.safetensors")


def config(**sections):
    tables = {
        "data": {"name": "digits"},
        "model": {"name": "small_cnn"},
        "partition": {"kind": "dirichlet", "clients": 20, "min_samples": 5},
        # Several cycles a window: momentum outlives a cycle
        "participation": {"active": 5, "window": 24},
        "policy": {"base_interval": 3, "increase_factor": 2},
        "local": {"momentum": 0.9, "batch_size": 16},
        "train": {"iterations": 96, "checkpoint_minutes": 0.0},
        "output": {"tensorboard": False},
    }
    for name, section in sections.items():
        tables[name] = (
            {**tables.get(name, {}), **section}
            if isinstance(section, dict)
            else section
        )
    return parse_config(tables)


def contents(folder: Path) -> dict[str, object]:
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"]
    return {
        "summary": summary,
        **{name: (folder / name).read_bytes() for name in COMPARED},
    }


class KilledError(Exception):
    pass


def kill_after(rounds: int):
    def observer(record):
        if record.round >= rounds:
            raise KilledError

    return observer


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    execute(config(), folder, workers=1)
    return contents(folder)


@pytest.mark.parametrize("rounds", [1, 2, 3, 9, 16, 31])
def test_a_run_cut_anywhere_and_resumed_equals_the_uninterrupted(
    rounds, tmp_path, uninterrupted
):
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        execute(config(), folder, [kill_after(rounds)], workers=1)
    execute(config(), folder, workers=2, resume=True)
    assert contents(folder) == uninterrupted


def test_a_run_without_momentum_resumes_inside_a_window(tmp_path):
    # Nothing outlives a cycle, but the window does
    plain = config(local={"momentum": 0.0}, train={"iterations": 48})
    execute(plain, tmp_path / "whole", workers=1)
    with pytest.raises(KilledError):
        # The checkpoint is of step 6 of a window of 24
        execute(plain, tmp_path / "run", [kill_after(3)], workers=1)
    execute(plain, tmp_path / "run", workers=1, resume=True)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


FAULTS = {
    "fail_before": 0.2,
    "fail_during": 0.2,
    "straggle": 0.2,
    "corrupt": 0.1,
    "norm_limit": 5.0,
    "min_clients": 3,
}


@pytest.fixture(scope="module")
def with_faults(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "run"
    execute(config(faults=FAULTS), folder, workers=1)
    return contents(folder)


@pytest.mark.parametrize("rounds", [10, 23])
def test_a_run_with_faults_cut_anywhere_and_resumed_equals_the_uninterrupted(
    rounds, tmp_path, with_faults
):
    records = [json.loads(line) for line in with_faults["rounds.jsonl"].splitlines()]
    # Some rounds were repeated
    assert any(one["attempt"] > 1 for record in records for one in record["excluded"])
    with pytest.raises(KilledError):
        execute(
            config(faults=FAULTS), tmp_path / "run", [kill_after(rounds)], workers=1
        )
    execute(config(faults=FAULTS), tmp_path / "run", workers=2, resume=True)
    assert contents(tmp_path / "run") == with_faults


def test_a_run_that_stops_for_want_of_clients_can_be_resumed_each_time(
    tmp_path, with_faults
):
    folder, patient = tmp_path / "run", config(faults={**FAULTS, "on_too_few": "stop"})
    for _ in range(100):
        try:
            execute(patient, folder, workers=1, resume=folder.exists())
        except RunError:
            continue
        break
    assert (folder / "rounds.jsonl").read_bytes() == with_faults["rounds.jsonl"]
    assert (folder / COMPARED[2]).read_bytes() == with_faults[COMPARED[2]]


def test_a_run_may_stop_before_its_first_record(tmp_path):
    never = config(faults={"straggle": 1.0, "on_too_few": "stop"})
    for attempt, resume in ((1, False), (2, True)):
        with pytest.raises(
            RunError,
            match=r"stopped at step 0 of 96: fewer than faults\.min_clients = 1 .* in round 1",
        ):
            execute(never, tmp_path / "run", workers=1, resume=resume)
        assert {path.name for path in (tmp_path / "run").iterdir()} >= {
            "config.toml",
            "checkpoint",
        }, attempt
    with pytest.raises(
        InputError,
        match=r"another configuration: faults\.straggle \(was 1\.0, is 0\.5\)",
    ):
        execute(
            config(faults={"straggle": 0.5, "on_too_few": "stop"}),
            tmp_path / "run",
            workers=1,
            resume=True,
        )


def test_a_resumed_result_has_all_records(tmp_path, uninterrupted):
    with pytest.raises(KilledError):
        execute(config(), tmp_path / "run", [kill_after(9)], workers=1)
    result = execute(config(), tmp_path / "run", workers=1, resume=True)
    assert [record.round for record in result.records] == list(range(1, 33))


def test_a_finished_run_is_left_alone(tmp_path):
    execute(config(train={"iterations": 6}), tmp_path / "run", workers=1)
    before = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    }
    assert (
        execute(
            config(train={"iterations": 6}), tmp_path / "run", workers=1, resume=True
        )
        is None
    )
    assert {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    } == before


def test_another_configuration_is_refused_by_its_keys(tmp_path):
    with pytest.raises(KilledError):
        execute(config(), tmp_path / "run", [kill_after(9)], workers=1)
    with pytest.raises(
        InputError,
        match=r"another configuration: local\.learning_rate \(was 0\.1, is 0\.2\)",
    ):
        execute(
            config(local={"learning_rate": 0.2}),
            tmp_path / "run",
            workers=1,
            resume=True,
        )


def test_a_run_may_go_on_with_other_checkpoints(tmp_path, uninterrupted):
    with pytest.raises(KilledError):
        execute(config(), tmp_path / "run", [kill_after(9)], workers=1)
    assert (
        execute(
            config(train={"checkpoint_minutes": 7.0}),
            tmp_path / "run",
            workers=1,
            resume=True,
        )
        is not None
    )
    assert contents(tmp_path / "run")["rounds.jsonl"] == uninterrupted["rounds.jsonl"]


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip_a_byte, tear, Path.unlink])
@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(
    damage, suffix, tmp_path, uninterrupted, capsys
):
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        execute(config(), folder, [kill_after(20)], workers=1)
    names = sorted((folder / "checkpoint").glob(f"step-*{suffix}"))
    assert len(names) == 2  # the last two are kept
    damage(names[-1])
    execute(config(), folder, workers=1, resume=True)
    assert contents(folder) == uninterrupted
    # A checkpoint without its JSON is not there at all
    if not (damage is Path.unlink and suffix == ".json"):
        assert f"{names[-1].with_suffix('.json')} is broken" in capsys.readouterr().err


def change_loss(path: Path, round_: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[round_ - 1] = (
        json.dumps({**json.loads(lines[round_ - 1]), "loss": 0.5}) + "\n"
    )
    path.write_text("".join(lines))


def test_a_changed_record_is_noticed_and_recorded_again(
    tmp_path, uninterrupted, capsys
):
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        execute(config(), folder, [kill_after(20)], workers=1)
    _, latest = sorted((folder / "checkpoint").glob("step-*.json"))
    change_loss(folder / "rounds.jsonl", json.loads(latest.read_text())["round"])
    execute(config(), folder, workers=1, resume=True)
    assert f"{latest} follows on other rounds" in capsys.readouterr().err
    assert contents(folder) == uninterrupted


def test_a_record_that_no_checkpoint_precedes_is_not_changed_unnoticed(tmp_path):
    with pytest.raises(KilledError):
        execute(config(), tmp_path / "run", [kill_after(20)], workers=1)
    change_loss(tmp_path / "run" / "rounds.jsonl", 1)
    with pytest.raises(
        InputError,
        match=r"follows on other rounds .* no other checkpoint to continue from",
    ):
        execute(config(), tmp_path / "run", workers=1, resume=True)


def test_when_every_checkpoint_is_damaged_the_sentence_says_so(tmp_path):
    with pytest.raises(KilledError):
        execute(config(), tmp_path / "run", [kill_after(20)], workers=1)
    for path in (tmp_path / "run" / "checkpoint").glob("step-*.safetensors"):
        flip_a_byte(path)
    with pytest.raises(InputError, match="no other checkpoint to continue from"):
        execute(config(), tmp_path / "run", workers=1, resume=True)


def test_a_second_run_into_the_same_folder_is_refused(tmp_path):
    def second(record):
        with pytest.raises(InputError, match="is being written by another run"):
            execute(config(), tmp_path / "run", workers=1, resume=True)

    execute(config(train={"iterations": 6}), tmp_path / "run", [second], workers=1)


def start(
    folder: Path, file: Path, workers: int, *more: str, own_group: bool = False
) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "fedlama",
        "run",
        str(file),
        "--out",
        str(folder),
        "--workers",
        str(workers),
        *more,
    ]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=own_group,
    )


def rounds_of(folder: Path) -> int:
    path = folder / "rounds.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_for_rounds(folder: Path, process: subprocess.Popen, rounds: int) -> None:
    while rounds_of(folder) < rounds and process.poll() is None:
        time.sleep(0.02)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(
        """
[data]
name = "digits"
[model]
name = "small_cnn"
[partition]
kind = "dirichlet"
clients = 20
min_samples = 5
[participation]
active = 5
window = 24
[policy]
base_interval = 3
increase_factor = 2
[local]
momentum = 0.9
batch_size = 16
[train]
iterations = 96
checkpoint_minutes = 0.0
[output]
tensorboard = false
"""
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_killed_several_times_ends_with_the_same_bits(
    workers, tmp_path, file, uninterrupted
):
    folder, draws = tmp_path / "run", random.Random(workers)
    for _ in range(3):
        process = start(
            folder, file, workers, *(["--resume"] if folder.exists() else [])
        )
        wait_for_rounds(folder, process, rounds_of(folder) + draws.randint(3, 8))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process = start(folder, file, workers, "--resume")
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert contents(folder) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_the_cycle_and_saves(
    number, tmp_path, file, uninterrupted
):
    folder = tmp_path / "run"
    process = start(folder, file, 2, "--set", "train.checkpoint_minutes=60")
    wait_for_rounds(folder, process, 3)
    process.send_signal(number)
    errors = process.communicate()[1]
    assert process.returncode == 1
    assert "finishing the cycle" in errors
    assert "--resume continues from there" in errors.splitlines()[-1]
    assert rounds_of(folder) < 32
    again = start(folder, file, 2, "--resume", "--set", "train.checkpoint_minutes=60")
    assert again.wait() == 0, again.communicate()
    again.communicate()
    assert (folder / "rounds.jsonl").read_bytes() == uninterrupted["rounds.jsonl"]
    assert (folder / COMPARED[2]).read_bytes() == uninterrupted[COMPARED[2]]


@pytest.mark.slow
def test_a_signal_to_the_whole_group_is_answered_once(tmp_path, file):
    folder = tmp_path / "run"
    process = start(
        folder, file, 2, "--set", "train.checkpoint_minutes=60", own_group=True
    )
    wait_for_rounds(folder, process, 3)
    os.killpg(process.pid, signal.SIGTERM)
    errors = process.communicate()[1]
    assert process.returncode == 1
    assert errors.count("finishing the cycle") == 1
    assert "--resume continues from there" in errors.splitlines()[-1]


@pytest.mark.slow
def test_torchrun_restarts_a_killed_group_from_its_checkpoint(
    tmp_path, file, uninterrupted
):
    folder = tmp_path / "run"
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    command = [
        *launcher,
        "--max-restarts",
        "2",
        "-m",
        "fedlama",
        "run",
        str(file),
        "--out",
        str(folder),
    ]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    wait_for_rounds(folder, process, 5)
    victim = next(pid for pid in children_of(process.pid) if rank_of(pid) == "1")
    os.kill(victim, signal.SIGKILL)
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert contents(folder) == uninterrupted


def children_of(pid: int) -> list[int]:
    return [
        int(child)
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ]


def rank_of(pid: int) -> str | None:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(
        (entry[5:].decode() for entry in entries if entry.startswith(b"RANK=")), None
    )


def test_a_stopped_simulation_is_told_as_a_failed_run(tmp_path):
    def press(record):
        if record.round == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(RunError, match=r"stopped at step 12 of 96"):
        execute(config(), tmp_path / "run", [press], workers=1)


def test_records_that_are_short_of_the_newest_checkpoint_take_the_one_before(
    tmp_path, uninterrupted, capsys
):
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        execute(config(), folder, [kill_after(9)], workers=1)
    lines = (folder / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    newest = max(
        json.loads(path.read_text())["round"]
        for path in (folder / "checkpoint").glob("step-*.json")
    )
    (folder / "rounds.jsonl").write_bytes(
        b"".join(lines[: newest - 1]) + b"\xff broken\n"
    )
    (folder / "timings.jsonl").unlink()  # holds nothing that matters
    execute(config(), folder, workers=1, resume=True)
    assert "rounds.jsonl has only" in capsys.readouterr().err
    assert contents(folder) == uninterrupted


def test_half_a_surrogate_pair_is_no_text(tmp_path):
    execute(config(train={"iterations": 6}), tmp_path / "run", workers=1)
    for name in ("rounds.jsonl", "summary.json"):
        text = (tmp_path / "run" / name).read_text()
        (tmp_path / "run" / name).write_text(text.replace("fc1.weight", "\\ud800x"))
        with pytest.raises(InputError, match="JSON"):
            load_run(tmp_path / "run")
        (tmp_path / "run" / name).write_text(text)


def test_a_seed_that_could_not_be_read_back_is_refused():
    with pytest.raises(InputError, match="seed"):
        config(seed=2**70)
