"""Files of expected numbers, with a first line that says where they were recorded.

Machines of that type are held to every bit. Another CPU type, or another version of torch, rounds otherwise in the last
bits, and training carries that on: there floats may differ by a relative 1e-4, whole numbers and words not at all.
"""

import json
import re
from pathlib import Path

import pytest
import torch

from fedlama.processes.cpu import cpu_type


def recorded_on():
    """What the last bits depend on: a name such as AMD EPYC is that of several generations."""
    return {
        "cpu": cpu_type(),
        "generation": cpu_generation(),
        "torch": torch.__version__,
    }


def cpu_generation(cpuinfo=Path("/proc/cpuinfo")):
    """Family and model of an x86 processor as Linux has them; elsewhere unknown."""
    if not cpuinfo.is_file():
        return None
    numbers = dict(
        re.findall(r"^(cpu family|model)\s*: (\d+)$", cpuinfo.read_text(), re.MULTILINE)
    )
    if len(numbers) < 2:
        return None
    return f"family {numbers['cpu family']}, model {numbers['model']}"


def write_golden(path, measured):
    """One line per entry makes a reviewable difference when the numbers change on purpose."""
    lines = [json.dumps(entry) for entry in (recorded_on(), *measured)]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def assert_golden(path, measured):
    """The numbers are those of the file."""
    machine, *expected = json.loads(path.read_text())
    assert_close(measured, expected, path.name)
    if machine == recorded_on():
        assert measured == expected, f"{path.name}: the last bits differ"


def assert_close(measured, expected, where):
    assert type(measured) is type(expected), (
        f"{where}: {measured!r} instead of {expected!r}"
    )
    if isinstance(expected, dict):
        assert list(measured) == list(expected), (
            f"{where}: keys {list(measured)} instead of {list(expected)}"
        )
        for key in expected:
            assert_close(measured[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(measured) == len(expected), (
            f"{where}: {len(measured)} entries instead of {len(expected)}"
        )
        for index, pair in enumerate(zip(measured, expected, strict=True)):
            assert_close(*pair, f"{where}[{index}]")
    elif isinstance(expected, float):
        assert measured == pytest.approx(expected, rel=1e-4), where
    else:
        assert measured == expected, where
