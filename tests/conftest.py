"""What all tests share: hypothesis settings and files of expected numbers that one flag rewrites."""

import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from fedlama.processes.bfloat16 import LIMIT, WITHOUT_AMX, bfloat16_runs

# Examples are a function of the test, as runs are of their seed; two busy cores allow no deadline.
settings.register_profile(
    "fedlama", deadline=None, derandomize=True, database=None, max_examples=100
)
settings.load_profile("fedlama")

# As users of such a machine are told to; before the first product, and for the programs that tests start
if not bfloat16_runs():
    os.environ[LIMIT] = WITHOUT_AMX
    bfloat16_runs.cache_clear()

# As `simulate` has it; on tensors this small a second thread only waits for the first
torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write tests/golden/*.json anew instead of comparing",
    )


@pytest.fixture
def golden(request):
    """Compare numbers with a file beside the test: whole numbers and words exactly, floats to a relative 1e-4.

    Another CPU type rounds otherwise in the last bits, and training carries that on. A file with one line a list entry
    makes a reviewable difference when the numbers change on purpose.
    """

    def compare(name, measured):
        path = Path(request.path).parent / name
        if request.config.getoption("--rewrite-golden"):
            path.write_text(
                "[\n" + ",\n".join(json.dumps(entry) for entry in measured) + "\n]\n"
            )
        assert_close(measured, json.loads(path.read_text()), name)

    return compare


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
