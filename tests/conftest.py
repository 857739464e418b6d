"""What all tests share: hypothesis settings and files of expected numbers that one flag rewrites."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from fedlama.processes.bfloat16 import LIMIT, WITHOUT_AMX, bfloat16_runs
from golden_file import assert_golden, write_golden

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
    """Compare numbers with a file beside the test, as `golden_file` says."""

    def compare(name, measured):
        path = Path(request.path).parent / name
        if request.config.getoption("--rewrite-golden"):
            write_golden(path, measured)
        assert_golden(path, measured)

    return compare
