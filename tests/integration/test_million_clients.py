"""A million clients with state per client: killed, resumed, the same bits, and memory that does not grow with them."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("million_program.py")
# Per client: a sample, its target and its place in the partition (24 bytes), copies of these while they are checked,
# and one byte in the store. A row of state is 4 · 96 bytes, twice: a gigabyte if all of them were kept in memory.
MAX_MORE = 200 << 10  # kilobytes


def start(clients, folder, *more):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(PROGRAM), str(clients), str(folder), *map(str, more)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.slow
def test_a_million_clients_with_state_killed_and_resumed_in_bounded_memory(tmp_path):
    few = json.loads(start(4_000, tmp_path / "few").stdout)
    whole = json.loads(start(1_000_000, tmp_path / "whole").stdout)
    killed = start(1_000_000, tmp_path / "killed", 7)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = start(1_000_000, tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr
    told = json.loads(resumed.stdout)
    assert told["weights"] == whole["weights"]
    for one in (whole, told):
        assert one["kilobytes"] - few["kilobytes"] < MAX_MORE
