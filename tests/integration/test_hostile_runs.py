"""What somebody may do to a run's folder: forge a checkpoint under a right checksum, put links in place of files."""

import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedlama.base import InputError, RunError
from fedlama.core import Evidence, FedLAMA, PolicyState
from fedlama.report import draw_report
from fedlama.run import checkpoints
from fedlama.run.checkpoint_search import find_checkpoint
from fedlama.run.config import load_config, parse_config
from fedlama.run.execute import execute
from fedlama.run.files import append_line, write_atomically
from fedlama.run.resolve import resolve
from fedlama.run.toml import to_toml
from fedlama.study.runs import load_run

FEDLAMA = [sys.executable, "-m", "fedlama"]


def config(**sections):
    tables = {
        "data": {"name": "digits"},
        "model": {"name": "mlp"},
        "partition": {"kind": "iid", "clients": 6},
        "participation": {"active": 3, "window": 8},
        "policy": {"base_interval": 2, "increase_factor": 2},
        "local": {"momentum": 0.9, "batch_size": 16},
        "train": {"iterations": 32, "checkpoint_minutes": 0.0},
        "output": {"tensorboard": False},
    }
    for name, section in sections.items():
        tables[name] = {**tables.get(name, {}), **section}
    return parse_config(tables)


class KilledError(Exception):
    pass


def kill_after(rounds: int):
    def observer(record):
        if record.round >= rounds:
            raise KilledError

    return observer


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """A run that was killed after its tenth round, with two checkpoints."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    with pytest.raises(KilledError):
        execute(config(), folder, [kill_after(10)], workers=1)
    assert len(list((folder / "checkpoint").glob("step-*.json"))) == 2
    return folder


@pytest.fixture
def copied(killed, tmp_path) -> Path:
    shutil.copytree(killed, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("whole") / "run"
    execute(config(), folder, workers=1)
    return (folder / "rounds.jsonl").read_bytes()


def newest(folder: Path) -> Path:
    return max((folder / "checkpoint").glob("step-*.json"))


def forge(path: Path, change=None, change_manifest=None) -> None:
    """Change the plain values in a checkpoint, or the JSON beside it, and make every checksum right again."""
    tensors = path.with_suffix(".safetensors")
    content = tensors.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    plain = json.loads(header["__metadata__"]["fedlama"])
    if change:
        change(plain)
    header["__metadata__"]["fedlama"] = json.dumps(plain)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = struct.pack("<Q", len(text)) + text + content[8 + length :]
    tensors.write_bytes(content)
    manifest = json.loads(path.read_text())
    del manifest["checksum"]
    manifest["sha256"] = hashlib.sha256(content).hexdigest()
    if change_manifest:
        change_manifest(manifest)
    manifest["checksum"] = checkpoints.checksum_of(manifest)
    path.write_text(json.dumps(manifest))


def in_state(**values):
    return lambda plain: plain["state"].update(values)


def for_every_layer(part, name, value):
    def change(plain):
        plain[part][name] = [value] * len(plain[part][name])

    return change


def deep(manifest):
    tables: dict = {}
    for _ in range(400):
        tables = {"x": tables}
    manifest["config"] = tables


FORGED = {
    "an interval of zero": for_every_layer("state", "intervals", 0),
    "step of another run": in_state(step=10**9),
    "the last step": in_state(step=32),
    "averaged in the future": for_every_layer("state", "synchronised_at", 99),
    "a cycle from the future": in_state(cycle_start=99),
    "another round": in_state(round=1),
    "sizes of another model": for_every_layer("ledger", "sizes", 1),
    "statistics of another model": lambda plain: plain["ledger"].update(
        statistics_size=7
    ),
    "attempts without faults": lambda plain: plain.update(attempt=5),
    "attempts that are no number": lambda plain: plain.update(attempt="5"),
    "discarded without faults": lambda plain: plain.update(
        discarded={"excluded": [], "uplink_bytes": 1, "downlink_bytes": 1}
    ),
    "a field too many": in_state(surprise=1),
    "a step inside a window": in_state(step=19, cycle_start=19),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_checkpoint_is_refused_and_the_one_before_is_used(
    what, copied, expected, capsys
):
    forge(newest(copied), FORGED[what])
    execute(config(), copied, workers=1, resume=True)
    assert "the one before it is used" in capsys.readouterr().err
    assert (copied / "rounds.jsonl").read_bytes() == expected


FORGED_MANIFESTS = {
    "a round that is text": lambda manifest: manifest.update(round="7"),
    "a round of 4,000 digits": lambda manifest: manifest.update(round=10**4000),
    "a negative round": lambda manifest: manifest.update(round=-1),
    "no config": lambda manifest: manifest.pop("config"),
    "a config that is a list": lambda manifest: manifest.update(config=[1]),
    "a key that is half a character": lambda manifest: manifest.update(
        config={"\ud800": 1}
    ),
    "a hostile key": lambda manifest: manifest.update(
        config={"\x1b[31m" * 1000: "\x1b" * 10_000}
    ),
    "many keys": lambda manifest: manifest.update(
        config={f"k{number}": number for number in range(10_000)}
    ),
    "tables without end": deep,
}


@pytest.mark.parametrize("what", FORGED_MANIFESTS)
def test_forged_json_beside_a_checkpoint_is_refused_in_a_sentence(
    what, copied, expected, capsys
):
    forge(newest(copied), change_manifest=FORGED_MANIFESTS[what])
    execute(config(), copied, workers=1, resume=True)
    said = capsys.readouterr().err
    assert "the one before it is used" in said
    assert said.count("\n") == 1
    assert len(said) < 3000
    assert (copied / "rounds.jsonl").read_bytes() == expected


def test_where_every_checkpoint_is_forged_the_run_does_not_go_on(copied):
    for path in (copied / "checkpoint").glob("step-*.json"):
        forge(path, for_every_layer("state", "synchronised_at", 99))
    with pytest.raises(
        InputError, match=r"averaged in the future; there is no other checkpoint"
    ):
        execute(config(), copied, workers=1, resume=True)


@dataclass(frozen=True, eq=False)
class Remembering(FedLAMA):
    """Keeps how often each layer was due, and looks at it when it plans."""

    def start(self, layers):
        return replace(super().start(layers), own={"due": [0] * len(layers)})

    def next(self, state: PolicyState, iterations: int):
        assert sum(state.own["due"]) >= 0
        return super().next(state, iterations)

    def observe(self, state, plan, evidence: Evidence, layers):
        counts = list(state.own["due"])
        for layer in plan.due:
            counts[layer] += 1
        return replace(
            super().observe(state, plan, evidence, layers), own={"due": counts}
        )


@pytest.mark.parametrize(
    "own", [None, {}, [], {"due": None}, {"due": ["x"]}, {"due": [1]}, "x", {"due": {}}]
)
def test_a_policy_whose_memory_was_forged_is_told_in_a_sentence(own, tmp_path):
    run = replace(resolve(config()), policy=Remembering(2, 2))
    folder = tmp_path / "run"
    with pytest.raises(KilledError):
        execute(run, folder, [kill_after(10)], workers=1)
    for path in (folder / "checkpoint").glob("step-*.json"):
        forge(path, in_state(own=own))
    with pytest.raises(InputError, match=r"cannot go on from its state \(\w+"):
        execute(run, folder, workers=1, resume=True)


def test_a_policy_with_a_memory_of_its_own_goes_on(tmp_path):
    run = replace(resolve(config()), policy=Remembering(2, 2))
    with pytest.raises(KilledError):
        execute(run, tmp_path / "run", [kill_after(10)], workers=1)
    execute(run, tmp_path / "run", workers=1, resume=True)
    assert load_run(tmp_path / "run").summary is not None


def test_files_of_a_checkpoint_that_are_no_files(copied):
    path = newest(copied)
    for victim in (path, path.with_suffix(".safetensors")):
        victim.unlink()
        os.mkfifo(victim)
        assert find_checkpoint(copied / "checkpoint", resolved_tables()).refused
        victim.unlink()
        victim.symlink_to("/dev/zero")
        assert find_checkpoint(copied / "checkpoint", resolved_tables()).refused


def resolved_tables():
    return resolve(config()).config.model_dump(exclude_none=True)


def test_a_configuration_that_is_gone_is_written_again_before_the_run_goes_on(
    copied, expected
):
    (copied / "config.toml").unlink()

    def looks(record):
        assert load_config(copied / "config.toml") is not None

    execute(config(), copied, [looks], workers=1, resume=True)
    assert (copied / "rounds.jsonl").read_bytes() == expected


@pytest.mark.parametrize(
    "line",
    [b"{}\n", b"\xff\xff\n", b'{"round": -1, "seconds": 1}\n', b"[" * 100_000 + b"\n"],
)
def test_a_bad_line_of_timings_does_not_stop_a_run_from_going_on(
    line, copied, expected
):
    lines = (copied / "timings.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = line
    (copied / "timings.jsonl").write_bytes(b"".join(lines))
    execute(config(), copied, workers=1, resume=True)
    assert (copied / "rounds.jsonl").read_bytes() == expected
    rounds = [
        json.loads(one)["round"]
        for one in (copied / "timings.jsonl").read_bytes().splitlines()
    ]
    assert rounds == [number for number in range(1, max(rounds) + 1) if number != 2]


def test_links_in_the_place_of_files_are_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "summary.json.partial").symlink_to(victim)
    (tmp_path / "rounds.jsonl").symlink_to(victim)
    write_atomically(tmp_path / "summary.json", "{}")
    with pytest.raises(RunError, match=r"rounds\.jsonl cannot be written"):
        append_line(tmp_path / "rounds.jsonl", "{}")
    assert victim.read_text() == "mine"
    assert (tmp_path / "summary.json").read_text() == "{}"
    assert not (tmp_path / "summary.json").is_symlink()


def test_a_file_keeps_the_rights_that_the_user_asked_for(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", "x")
        append_line(tmp_path / "b", "x")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o640]


@pytest.mark.parametrize("epoch", ["abc", "", "9" * 400, "-1"])
def test_a_date_in_the_environment_does_not_matter(
    epoch, copied, tmp_path, monkeypatch
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert draw_report([load_run(copied)], tmp_path / "report").is_file()
    assert os.environ["SOURCE_DATE_EPOCH"] == epoch


@pytest.mark.parametrize(
    "text", [b"\xff=1", b"data.\xff=1", b"data.name=\xff", b"versions.a=\xff"]
)
def test_an_override_that_is_not_utf_8(text, tmp_path):
    (tmp_path / "c.toml").write_text(to_toml(config().model_dump(exclude_none=True)))
    with pytest.raises(InputError, match="is not UTF-8"):
        load_config(tmp_path / "c.toml", [os.fsdecode(text)])


@pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="needs fedlama[tensorboard]"
)
def test_tensorboard_needs_no_thread_that_could_fail(tmp_path, monkeypatch):
    """The folder vanishes after the first round: one sentence, and nothing that a thread prints."""
    failed = []
    monkeypatch.setattr(threading, "excepthook", failed.append)

    def vanish(record):
        shutil.rmtree(tmp_path / "run")

    before = threading.active_count()
    with pytest.raises(RunError, match="was deleted or moved"):
        execute(
            config(output={"tensorboard": True}), tmp_path / "run", [vanish], workers=1
        )
    assert threading.active_count() == before
    assert not failed


@pytest.mark.slow
def test_a_storm_of_signals_ends_with_the_programs_own_code(tmp_path):
    tables = config(
        train={"iterations": 100_000, "evaluate_every": 100_000}
    ).model_dump(exclude_none=True)
    (tmp_path / "c.toml").write_text(to_toml(tables))
    command = [*FEDLAMA, "run", "c.toml", "--out", "run", "--workers", "2"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "run" / "rounds.jsonl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        while process.poll() is None:
            assert time.monotonic() < deadline
            process.send_signal(signal.SIGTERM)
            time.sleep(0.002)
        said = process.communicate()[1]
    assert process.returncode in (1, 130)  # it stopped in an orderly way, or at once
    assert "Traceback" not in said
