"""What clients keep while they are away, in a run directory's checkpoints: in pieces, and the same bits."""

import hashlib
import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from small_disk import Disk, command, in_a_fork

from fedlama.base import InputError
from fedlama.rows import store as rows_store
from fedlama.run import checkpoints
from fedlama.run.checkpoints import CheckpointWriter
from fedlama.run.config import parse_config
from fedlama.run.directory import RunDirectory
from fedlama.run.execute import execute
from fedlama.run.toml import to_toml

PROGRAM = Path(__file__).with_name("seen_program.py")
# Ten times as many clients: samples and other things that grow with them, and 90 MB more of state
MAX_MORE = 60 << 10  # kilobytes

COMPARED = ("rounds.jsonl", "checkpoint/model.safetensors")
TABLES = {
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "partition": {"kind": "iid", "clients": 12},
    "participation": {"active": 4, "window": 4},
    "policy": {"base_interval": 2, "increase_factor": 2},
    "local": {"rule": "scaffold", "batch_size": 16},
    "train": {"iterations": 32, "checkpoint_minutes": 0.0},
    "output": {"tensorboard": False},
}
SLOT = "seen/scaffold control"  # of SCAFFOLD's clients, in the file


def config():
    return parse_config(TABLES)


class KilledError(Exception):
    pass


def kill_after(rounds):
    def observer(record):
        if record.round >= rounds:
            raise KilledError

    return observer


def contents(folder):
    return {name: (folder / name).read_bytes() for name in COMPARED}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Two rows or so at a time, so that even a small run has several pieces."""
    monkeypatch.setattr(rows_store, "PIECE_BYTES", 100_000)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    execute(config(), folder, workers=1)
    return contents(folder)


@pytest.fixture
def killed(tmp_path):
    """A run that was killed in its sixth window, with two checkpoints."""
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        execute(config(), folder, [kill_after(12)], workers=1)
    return folder


def states(folder):
    """The files with the run's state, the newest last."""
    found = sorted((folder / "checkpoint").glob("step-*.safetensors"))
    assert len(found) == 2
    return found


def vouch(path):
    """Make the checksums right again."""
    manifest_file = path.with_suffix(".json")
    manifest = json.loads(manifest_file.read_text())
    del manifest["checksum"]
    manifest["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["checksum"] = checkpoints.checksum_of(manifest)
    manifest_file.write_text(json.dumps(manifest))


def texts_of(path):
    with safe_open(path, "numpy") as file:
        return file.metadata()


def start(clients, folder):
    arguments = [sys.executable, str(PROGRAM), str(clients), str(folder)]
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_memory_stays_bounded_as_the_clients_in_a_checkpoint_grow_tenfold(tmp_path):
    for moment in ("saving", "going on"):
        few = start(1_000, tmp_path / "few")
        many = start(10_000, tmp_path / "many")
        assert many["saved"] > 10 * few["saved"], moment
        assert many["saved"] > 90e6, moment
        assert many["kilobytes"] - few["kilobytes"] < MAX_MORE, moment


@pytest.mark.parametrize("workers", [(1, 3), (3, 1)])
def test_a_run_with_state_of_clients_killed_and_resumed_has_the_same_bits(
    workers, tmp_path, uninterrupted
):
    before, after = workers
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        execute(config(), folder, [kill_after(12)], workers=before)
    execute(config(), folder, workers=after, resume=True)
    assert contents(folder) == uninterrupted


def test_the_file_is_safetensors_with_a_row_for_each_client_seen(killed):
    saved = load_file(states(killed)[-1])
    seen = saved["seen"]
    assert seen.tolist() == sorted(set(seen.tolist()))
    assert 8 <= len(seen) <= 12
    assert saved[SLOT].shape == (len(seen), len(saved["row"]))
    # Clients that trained have a control variate of their own
    norms = np.linalg.norm(saved[SLOT], axis=1)
    assert (norms > 0).all()
    assert len(set(norms.tolist())) == len(seen)


def test_workers_do_not_show_in_the_file(tmp_path):
    for workers in (1, 3):
        folder = tmp_path / str(workers)
        with pytest.raises(KilledError):
            execute(config(), folder, [kill_after(12)], workers=workers)
    one, three = (states(tmp_path / name) for name in ("1", "3"))
    assert {path.name: path.read_bytes() for path in one} == {
        path.name: path.read_bytes() for path in three
    }


def test_a_checkpoint_as_it_was_written_before_pieces_is_read(killed, uninterrupted):
    for path in states(killed):
        texts = texts_of(path)
        # In the order of safetensors, in which these rows do not come last
        save_file(load_file(path), path, texts)
        vouch(path)
    execute(config(), killed, workers=1, resume=True)
    assert contents(killed) == uninterrupted


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(bytes(content))


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-1000])


def cut_off_and_vouch(path):
    cut_off(path)
    vouch(path)


def change_rows(path, change):
    tensors = load_file(path)
    change(tensors)
    texts = texts_of(path)
    save_file(tensors, path, texts)
    vouch(path)


def not_finite(path):
    change_rows(path, lambda tensors: tensors[SLOT].__setitem__((-1, -1), np.nan))


def one_row_too_few(path):
    change_rows(path, lambda tensors: tensors.update({SLOT: tensors[SLOT][1:].copy()}))


def another_client(path):
    change_rows(path, lambda tensors: tensors["seen"].__setitem__(-1, 12))


def without_rows(path):
    change_rows(path, lambda tensors: tensors.pop(SLOT))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_a_byte, "is broken: its bytes are not those that were saved"),
        (cut_off, "is broken: its bytes are not those that were saved"),
        (cut_off_and_vouch, "it is shorter or longer than its header says"),
        (not_finite, "it does not fit the model"),
        (one_row_too_few, "it does not fit the model"),
        (another_client, "it does not fit the model"),
        (without_rows, "it does not fit the model"),
    ],
)
def test_damaged_rows_are_refused_and_the_checkpoint_before_is_used(
    damage, reason, killed, uninterrupted, capsys
):
    damage(states(killed)[-1])
    execute(config(), killed, workers=1, resume=True)
    said = capsys.readouterr().err
    assert reason in said
    assert "the one before it is used" in said
    assert contents(killed) == uninterrupted


def test_where_both_are_damaged_nothing_is_trained(killed):
    for path in states(killed):
        cut_off(path)
    with pytest.raises(InputError, match="no other checkpoint to continue from"):
        execute(config(), killed, workers=1, resume=True)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_killed_between_two_pieces_goes_on_from_the_checkpoint_before(
    workers, tmp_path, uninterrupted, monkeypatch
):
    folder = tmp_path / "run"
    write = CheckpointWriter.write
    pieces = []

    def killing(self, piece):
        pieces.append(piece)
        # In the middle of the fourth checkpoint or so
        if len(pieces) > 14:
            raise KilledError
        write(self, piece)

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointWriter, "write", killing)
        # As after a SIGKILL: nobody tidies up
        patched.setattr(
            CheckpointWriter, "discard", lambda self: self._file._file.close()
        )
        with pytest.raises(KilledError):
            execute(config(), folder, workers=workers)
    (left,) = (folder / "checkpoint").glob("*.partial")
    assert left.stat().st_size > 0

    def looking(record):
        # What was left is deleted before the next checkpoint is written
        if record.round > 10:
            assert not list((folder / "checkpoint").glob("*.partial"))

    execute(config(), folder, [looking], workers=workers, resume=True)
    assert contents(folder) == uninterrupted


def test_an_error_between_two_pieces_leaves_nothing_behind(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    write = CheckpointWriter.write
    pieces = []

    def failing(self, piece):
        pieces.append(piece)
        if len(pieces) > 14:
            raise KilledError
        write(self, piece)

    monkeypatch.setattr(CheckpointWriter, "write", failing)
    with pytest.raises(KilledError):
        execute(config(), folder, workers=3)
    assert not list((folder / "checkpoint").glob("*.partial"))
    assert len(states(folder)) == 2


def full_between_two_pieces(folder, file):
    disk = Disk(folder)
    record = RunDirectory.record

    def recording(self, one):
        record(self, one)
        if one.round == 9:
            leave_little(disk)

    RunDirectory.record = recording
    run = folder / "run"
    code, said = command("run", file, "--out", run, "--workers", 2)
    RunDirectory.record = record
    disk.make_room()
    left = [path.name for path in folder.rglob("*.partial")]
    whole = len(list((run / "checkpoint").glob("step-*.json")))
    again, complaint = command("run", file, "--out", run, "--workers", 2, "--resume")
    hashes = [hashlib.sha256(content).hexdigest() for content in contents(run).values()]
    return {
        "code": code,
        "said": said,
        "left": left,
        "whole": whole,
        "again": again,
        "complaint": complaint,
        "hashes": hashes,
    }


def leave_little(disk):
    """Room for records and for a part of a checkpoint."""
    little = 120_000
    if not disk.is_real:
        disk.fill()
        resource.setrlimit(resource.RLIMIT_FSIZE, (little, resource.RLIM_INFINITY))
        return
    # Not the next checkpoint into the room of one that was dropped
    disk.fill()
    filler = disk.folder / "filler"
    with filler.open("r+b") as file:
        file.truncate(filler.stat().st_size - little)


def test_a_disk_that_fills_up_between_two_pieces_loses_nothing(tmp_path, uninterrupted):
    file = tmp_path / "config.toml"
    file.write_text(to_toml(TABLES))
    answer = in_a_fork(
        full_between_two_pieces,
        tmp_path / "disk",
        file,
        answers=tmp_path / "answers",
    )
    lines = [one for one in answer["said"].splitlines() if one.startswith("fedlama: ")]
    assert answer["code"] == 1
    assert len(lines) == 1, answer["said"]
    assert "step-" in lines[0]
    assert ".safetensors cannot be written: no space left" in lines[0]
    assert answer["left"] == []
    assert answer["whole"] == 2
    assert answer["again"] == 0, answer["complaint"]
    assert answer["hashes"] == [
        hashlib.sha256(content).hexdigest() for content in uninterrupted.values()
    ]


@pytest.mark.slow
def test_a_group_under_torchrun_goes_on_with_the_same_bits(
    killed, tmp_path, uninterrupted
):
    """There every process has a store of its own, and rank 0 alone has read the file."""
    file = tmp_path / "config.toml"
    file.write_text(to_toml(TABLES))
    arguments = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", "2", "-m", "fedlama", "run", str(file)),
        *("--out", str(killed), "--resume"),
    ]
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert contents(killed) == uninterrupted
