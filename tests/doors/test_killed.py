"""Whatever comes through a door survives a kill in the middle of a cycle, and goes on to the same bits."""

import subprocess
import sys
from pathlib import Path

import pytest

from doors.harness import run, run_in_folder, same_bits
from doors.killed_program import DOORS, KILLED_IN

TESTS = Path(__file__).resolve().parents[1]
# The second of three rounds: a checkpoint is from the round before.
LAST_SAVED = KILLED_IN - 2


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder with a run for each door, none of which was asked to stop."""
    folder = tmp_path_factory.mktemp("killed")
    ended = subprocess.run(
        [sys.executable, "-m", "doors.killed_program", str(folder)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.parametrize("door", DOORS)
def test_a_run_that_is_killed_in_a_cycle_goes_on_to_the_same_bits(door, killed):
    options = DOORS[door]
    again = []
    folder = killed / door
    assert not (folder / "summary.json").exists()
    resumed = run_in_folder(
        folder, [lambda record: again.append(record.round)], resume=True, **options
    )
    assert again[0] == LAST_SAVED + 1, "it did not go on from its last checkpoint"
    assert same_bits(run(**options), resumed)
