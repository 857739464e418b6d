"""deploy.py of the example as a program."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flower.programs import EXAMPLE, SECONDS, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
]


@pytest.fixture
def example(tmp_path):
    """The example with two rounds in place of twelve, and folders of its own."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    about = folder / "pyproject.toml"
    text = about.read_text()
    shorter = text.replace("iterations = 72", "iterations = 12")
    assert shorter != text
    about.write_text(shorter)
    (tmp_path / "temporary").mkdir()
    return ExampleScript(tmp_path)


class ExampleScript:
    """deploy.py as a program. All that it writes is below a folder for temporary files."""

    def __init__(self, folder):
        self.program = folder / "example" / "deploy.py"
        self.temporary = folder / "temporary"
        self.out = folder / "out"
        self.err = folder / "err"

    @contextmanager
    def running(self, *settings):
        with self.out.open("wb") as out, self.err.open("wb") as err:
            script = subprocess.Popen(
                [sys.executable, str(self.program), *settings],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )
            try:
                yield script
            finally:
                script.kill()
                script.wait()

    def said(self):
        """What it said beside the table."""
        return self.err.read_text().splitlines()

    def assert_nothing_is_left(self):
        assert of_folder(self.temporary) == []
        assert list(self.temporary.iterdir()) == []


def test_the_examples_script_trains_prints_its_table_and_ends_everything(example):
    with example.running("frugal") as script:
        status = script.wait(timeout=SECONDS)
    assert status == 0, example.said()
    header, row = example.out.read_text().splitlines()
    assert header.split() == ["accuracy", "up,", "kB", "down,", "kB", "seconds"]
    name, accuracy, up, down, seconds = row.split()
    assert name == "frugal"
    assert 0 < float(accuracy) < 1
    # In each of two rounds two clients are sent the whole model, 6,570 numbers, and send a twentieth of its bytes.
    assert int(down) == round(4 * 6570 * 4 / 1000)
    assert 0 < int(up) <= 0.05 * int(down) + 1
    assert int(seconds) > 0
    assert example.said() == ["frugal begins"]
    example.assert_nothing_is_left()


def test_the_examples_script_ends_everything_when_it_is_asked_to(example):
    with example.running("fedlama") as script:
        wait_until(
            lambda: (
                script.poll() is not None
                or list(example.temporary.glob("*/fedlama/rounds.jsonl"))
            ),
            "the first round",
        )
        assert script.poll() is None, example.said()
        assert of_folder(example.temporary)
        script.send_signal(signal.SIGTERM)
        assert script.wait(timeout=SECONDS) == 128 + signal.SIGTERM
    # Nothing but the table's head, and no traceback
    assert len(example.out.read_text().splitlines()) == 1
    assert example.said() == ["FedLAMA begins"]
    example.assert_nothing_is_left()


def of_folder(folder):
    """The ids of all processes whose FLWR_HOME is below this folder."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):
            environment = (process / "environ").read_bytes()
            if f"FLWR_HOME={folder}".encode() in environment:
                found.append(int(process.name))
    return found
