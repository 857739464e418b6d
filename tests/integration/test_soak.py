"""A very short soak: a few drawn configurations through all the checks; and the checks do find what is wrong."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from fedlama.run.config import parse_config
from soak.checks import BrokenError, check_run
from soak.disk import trial_disk
from soak.drawing import draw
from soak.trials import finish_in_process, try_out

TRIALS = (12, 58, 119)  # the first runs out of disk twice, the second once


@pytest.mark.slow
@pytest.mark.parametrize("number", TRIALS)
def test_a_short_soak(number, tmp_path, monkeypatch):
    source = str(Path(__file__).parents[2] / "src")
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    )
    assert try_out(draw(number), tmp_path / "trial")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run in which something happens in every round."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    tables = {
        "data": {"name": "digits"},
        "model": {"name": "mlp"},
        "partition": {"kind": "iid", "clients": 5},
        "policy": {"base_interval": 2, "increase_factor": 2},
        "train": {"iterations": 11},
        "faults": {"straggle": 0.3, "fail_during": 0.3, "fail_before": 0.2},
        "output": {"tensorboard": False},
    }
    finish_in_process(parse_config(tables), folder)
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def written(files: dict[str, str], folder: Path, record=None, summary=None) -> Path:
    """The run's files with something changed: a function of the second record, one of the summary."""
    records = [json.loads(line) for line in files["rounds.jsonl"].splitlines()]
    told = json.loads(files["summary.json"])
    for change, what in ((record, records[1]), (summary, told)):
        if change:
            change(what)
    (folder / "config.toml").write_text(files["config.toml"])
    (folder / "rounds.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in records)
    )
    (folder / "summary.json").write_text(json.dumps(told))
    return folder


def test_the_checks_are_content_with_a_right_run(finished, tmp_path):
    check_run(written(finished, tmp_path))


def move_bytes(summary):
    """From one layer's account to another's: only recomputing tells."""
    summary["layers"][0]["uplink_bytes"] += 4
    summary["layers"][1]["uplink_bytes"] -= 8


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (
            {
                "summary": lambda told: told.update(
                    uplink_bytes=told["uplink_bytes"] + 4
                )
            },
            "uplink_bytes is not the sum",
        ),
        (
            {"record": lambda record: record.update(due=record["due"][1:])},
            "not as counted",
        ),
        (
            {"summary": lambda told: told.update(cost=told["cost"] + 0.001)},
            "cost is not C",
        ),
        (
            {"record": lambda record: record.update(step=record["step"] + 1)},
            "cycles do not end where they should",
        ),
        (
            {
                "record": lambda record: record["excluded"].append(
                    {"client": 9, "reason": "", "attempt": 1}
                )
            },
            "bytes of",
        ),
        ({"summary": move_bytes}, "does not add up"),
    ],
)
def test_the_checks_find_what_is_wrong(changes, found, finished, tmp_path):
    with pytest.raises(BrokenError, match=found):
        check_run(written(finished, tmp_path, **changes))


def test_all_kinds_of_interruptions_are_drawn():
    kinds = {
        interruption.kind
        for number in range(100)
        for interruption in draw(number).interruptions
    }
    assert kinds == {"kill", "kill a worker", "stop", "full disk"}


def test_a_trials_disk_can_be_filled_and_emptied(tmp_path):
    """As root a real one: what is written there is kept in the folder when the disk is gone."""
    with trial_disk(tmp_path / "disk", will_be_filled=True) as disk:
        (disk.folder / "before").write_bytes(bytes(10_000))
        if disk.is_real:
            with subprocess.Popen(["true"]) as process:
                disk.fill(process)
            with pytest.raises(OSError, match="No space left"):
                (disk.folder / "more").write_bytes(bytes(100_000))
            disk.make_room()
        (disk.folder / "after").write_bytes(bytes(100_000))
    assert (tmp_path / "disk" / "before").stat().st_size == 10_000
    assert (tmp_path / "disk" / "after").stat().st_size == 100_000


def test_trials_are_functions_of_their_numbers():
    assert draw(5) == draw(5) != draw(6)
