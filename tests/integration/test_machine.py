"""What the machine can do to a run: a full disk, a folder that cannot be written, two runs at once.

Each ends in one sentence without a traceback, and nothing that was finished is lost.
"""

import errno
import fcntl
import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_disk import Disk, command, in_a_fork, mounted

from fedlama.base import InputError, RunError
from fedlama.run.config import load_config
from fedlama.run.directory import RunDirectory
from fedlama.run.execute import execute
from fedlama.run.files import append_line, is_locked, locked
from fedlama.run.resolve import RESOLVED, data_hash, load_data
from fedlama.study.runs import load_run

CONFIG = """
[data]
name = "digits"
[model]
name = "small_cnn"
[partition]
clients = 6
[participation]
active = 3
window = 12
[policy]
base_interval = 2
increase_factor = 2
[local]
momentum = 0.9
batch_size = 16
[train]
iterations = 24
checkpoint_minutes = {minutes}
[output]
tensorboard = {tensorboard}
"""
COMPARED = ("rounds.jsonl", "checkpoint/model.safetensors")


def write_config(folder: Path, minutes: float = 0.0, tensorboard: bool = False) -> Path:
    path = folder / "config.toml"
    path.write_text(
        CONFIG.format(minutes=minutes, tensorboard=str(tensorboard).lower())
    )
    return path


def hashes(run: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in COMPARED
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    execute(load_config(write_config(folder)), folder / "run", workers=1)
    return hashes(folder / "run")


def fill_at(disk: Disk, moment: str) -> None:
    """Have the disk fill up after a round, after the last one, when all is finished, or at once."""
    record, finish = RunDirectory.record, RunDirectory.finish

    def recording(self, one):
        record(self, one)
        if one.round == {"first": 1, "round": 5, "end": 12}.get(moment):
            disk.fill()

    def finishing(self, result):
        finish(self, result)
        if moment == "finished":
            disk.fill()

    RunDirectory.record, RunDirectory.finish = recording, finishing
    if moment == "start":
        disk.fill()


def full_and_resumed(folder: Path, config: Path, moment: str, workers: int) -> dict:
    disk = Disk(folder)
    before = RunDirectory.record, RunDirectory.finish
    fill_at(disk, moment)
    run, options = folder / "run", ("--workers", workers)
    code, said = command("run", config, "--out", run, *options)
    disk.make_room()
    RunDirectory.record, RunDirectory.finish = before
    left = [path.name for path in folder.rglob("*.partial")]
    rounds = len(load_run(run).records) if (run / "config.toml").exists() else 0
    again, complaint = command("run", config, "--out", run, *options, "--resume")
    return {
        **{
            "code": code,
            "said": said,
            "left": left,
            "rounds": rounds,
            "again": again,
            "complaint": complaint,
        },
        **{"hashes": hashes(run), "report": (run / "report.html").exists()},
    }


@pytest.mark.parametrize(
    ("moment", "minutes", "tensorboard", "workers", "named"),
    [
        ("start", 0.0, False, 1, "config.toml"),
        ("round", 5.0, False, 2, ".jsonl"),
        ("round", 0.0, False, 2, "step-"),
        ("first", 5.0, True, 1, "tensorboard"),
        ("end", 5.0, False, 1, "model.safetensors"),
        ("finished", 5.0, False, 1, "report.png"),
    ],
)
def test_a_full_disk_is_told_and_the_run_goes_on_after_it(
    tmp_path, uninterrupted, moment, minutes, tensorboard, workers, named
):
    config = write_config(tmp_path, minutes, tensorboard)
    told = in_a_fork(
        full_and_resumed,
        tmp_path / "disk",
        config,
        moment,
        workers,
        answers=tmp_path / "answers",
    )
    lines = [line for line in told["said"].splitlines() if line.startswith("fedlama: ")]
    assert told["code"] == 1
    assert len(lines) == 1, told["said"]
    assert named in lines[0]
    assert "no space left" in lines[0]
    assert "Traceback" not in told["said"]
    assert told["left"] == []
    assert told["rounds"] >= {"start": 0, "first": 1, "round": 5}.get(moment, 12)
    assert told["again"] == 0, told["complaint"]
    assert told["hashes"] == uninterrupted
    assert told["report"]


def test_half_a_line_is_taken_back(tmp_path):
    path = tmp_path / "rounds.jsonl"
    append_line(path, '{"round": 1}')

    def filling(folder: Path) -> str:
        disk = Disk(folder)
        (folder / "rounds.jsonl").write_bytes(path.read_bytes())
        disk.fill()
        with pytest.raises(
            RunError, match=r"rounds.jsonl cannot be written: no space left"
        ):
            # The first of its pages may still find room
            append_line(folder / "rounds.jsonl", "x" * 10_000)
        return (folder / "rounds.jsonl").read_text()

    assert (
        in_a_fork(filling, tmp_path / "disk", answers=tmp_path / "answers")
        == '{"round": 1}\n'
    )


def on_a_read_only_disk(folder: Path, config: Path, run: Path) -> dict:
    if not mounted(folder, read_only=True):
        folder.rmdir()
        # The same refusal for a reason that needs no rights
        folder.write_text("a file where a folder should be")
    code, said = command("run", config, "--out", folder / "runs" / "mine")
    report = command("report", run, "--out", folder / "report")
    return {"run": (code, said), "report": report}


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    config = write_config(tmp_path)
    execute(load_config(config), tmp_path / "run", workers=1)
    (tmp_path / "locked").mkdir()
    told = in_a_fork(
        on_a_read_only_disk,
        tmp_path / "locked",
        config,
        tmp_path / "run",
        answers=tmp_path / "answers",
    )
    for code, said in told.values():
        assert code == 2
        assert str(tmp_path / "locked") in said
        assert len(said.splitlines()) == 1


def test_the_folder_of_another_run_is_left_as_it_is(tmp_path):
    config = write_config(tmp_path)
    execute(load_config(config), tmp_path / "run", workers=1)
    before = {
        path: path.read_bytes()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    }
    with pytest.raises(InputError, match="already holds a run"):
        execute(load_config(config), tmp_path / "run", workers=1)
    with pytest.raises(
        InputError, match=r"another configuration: train.iterations \(was 24, is 36\)"
    ):
        execute(
            load_config(config, ["train.iterations=36", "train.evaluate_every=2"]),
            tmp_path / "run",
            resume=True,
        )
    assert {
        path: path.read_bytes()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    } == before


HOLDER = """
import sys
from pathlib import Path
from fedlama.run.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_cannot_hold_one_folder_and_a_killed_one_lets_it_go(tmp_path):
    folder = tmp_path / "run"
    arguments = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match="is being written by another run"),
            locked(folder),
        ):
            pytest.fail("both hold it")
        holder.kill()
    with locked(folder):
        assert (folder / ".lock").exists()


def test_deleting_the_lock_file_of_a_folder_lets_nobody_in(tmp_path):
    with locked(tmp_path):
        (tmp_path / ".lock").unlink()
        with pytest.raises(InputError, match="another run"), locked(tmp_path):
            pytest.fail("both hold it")
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_one_who_only_looks_keeps_nobody_out(tmp_path, monkeypatch):
    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    # The look is over while the run waits.
    monkeypatch.setattr(
        "fedlama.run.files.time.sleep", lambda seconds: os.close(looking)
    )
    with locked(tmp_path):
        assert is_locked(tmp_path)


def test_where_a_folder_cannot_be_locked_its_file_is(tmp_path, monkeypatch):
    """As on some network file systems."""
    flock = fcntl.flock

    def files_only(handle, operation):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(handle, operation)

    monkeypatch.setattr("fcntl.flock", files_only)
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(InputError, match="another run"), locked(tmp_path):
            pytest.fail("both hold it")
    assert not is_locked(tmp_path)


def test_a_link_in_place_of_the_lock_file_is_not_followed(tmp_path):
    folder, target = tmp_path / "run", tmp_path / "precious"
    folder.mkdir()
    target.write_text("mine")
    (folder / ".lock").symlink_to(target)
    with pytest.raises(InputError, match="cannot be written"), locked(folder):
        pytest.fail("it was followed")
    assert target.read_text() == "mine"


def test_a_folder_that_is_replaced_while_a_run_writes_into_it_stops_that_run(tmp_path):
    run, config = tmp_path / "run", load_config(write_config(tmp_path))

    def replace_it(record) -> None:
        if record.round == 2:
            run.rename(tmp_path / "elsewhere")
            run.mkdir()

    with pytest.raises(
        RunError, match="was deleted or moved while the run was writing into it"
    ):
        execute(config, run, [replace_it], workers=1)
    assert not list(run.iterdir())
    assert len((tmp_path / "elsewhere" / "rounds.jsonl").read_text().splitlines()) == 2


def forget_data():
    """What a process remembers of data, which another one would not."""
    load_data.cache_clear()
    data_hash.cache_clear()
    RESOLVED.clear()


@pytest.fixture
def own_data(tmp_path):
    """A config on a file of its own, and the file; what a process remembers of data is forgotten."""
    x = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(60) % 3, test=np.arange(60) > 48)
    path = write_config(tmp_path)
    path.write_text(path.read_text().replace('"digits"', f'"{tmp_path / "mine.npz"}"'))
    forget_data()
    yield path, tmp_path / "mine.npz"
    forget_data()


def stop_after_round_six(record) -> None:
    if record.round == 6:
        raise RunError("stopped")


def test_data_that_changed_under_a_run_is_refused_by_its_file(own_data, tmp_path):
    config, data = own_data
    with pytest.raises(RunError, match="stopped"):
        execute(
            load_config(config), tmp_path / "run", [stop_after_round_six], workers=1
        )
    before = data.read_bytes()
    assert (
        f'sha256 = "{hashlib.sha256(before).hexdigest()}"'
        in (tmp_path / "run" / "config.toml").read_text()
    )
    with np.load(data) as stored:
        np.savez(data, **{**stored, "x": 255 - stored["x"]})
    forget_data()
    with pytest.raises(
        InputError,
        match=r"mine\.npz changed since the run in .*\(SHA-256 .*: restore the data",
    ):
        execute(load_config(config), tmp_path / "run", resume=True, workers=1)
    data.write_bytes(before)
    forget_data()
    assert execute(load_config(config), tmp_path / "run", resume=True, workers=1)


def test_a_config_may_insist_on_its_data(own_data, tmp_path):
    config, data = own_data
    right = hashlib.sha256(data.read_bytes()).hexdigest()
    assert execute(
        load_config(config, [f"data.sha256={right}"]), tmp_path / "run", workers=1
    )
    with pytest.raises(
        InputError,
        match=rf"data.sha256 = '0+': the SHA-256 of .*mine\.npz .*is {right}",
    ):
        execute(
            load_config(config, [f'data.sha256="{"0" * 64}"']),
            tmp_path / "other",
            workers=1,
        )
    with pytest.raises(
        InputError, match=r"data\.sha256 = 'abc': must be 64 hexadecimal digits"
    ):
        load_config(config, ["data.sha256=abc"])
    assert not (tmp_path / "other").exists()


def test_a_run_from_before_there_were_hashes_goes_on(own_data, tmp_path):
    config, _ = own_data
    with pytest.raises(RunError, match="stopped"):
        execute(
            load_config(config), tmp_path / "run", [stop_after_round_six], workers=1
        )
    path = tmp_path / "run" / "config.toml"
    path.write_text(
        "".join(
            line
            for line in path.read_text().splitlines(keepends=True)
            if "sha256" not in line
        )
    )
    for voucher in (tmp_path / "run" / "checkpoint").glob("*.json"):
        content = json.loads(voucher.read_text())
        del content["config"]["data"]["sha256"], content["checksum"]
        checksum = hashlib.sha256(
            json.dumps(content, sort_keys=True).encode()
        ).hexdigest()
        voucher.write_text(json.dumps({**content, "checksum": checksum}))
    assert execute(load_config(config), tmp_path / "run", resume=True, workers=1)
