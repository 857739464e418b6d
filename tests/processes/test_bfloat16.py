"""A processor that announces AMX and traps it: the trial, and the sentence in place of SIGILL."""

import signal
import subprocess

import pytest

import fedlama
from fedlama.base import InputError
from fedlama.processes import bfloat16


@pytest.fixture
def trial(monkeypatch):
    """Stand-ins for the processor and for the process in which the product is tried."""
    tried = []

    def processor(announces: bool, outcome: int | Exception):
        def run(command, **options):
            tried.append(command)
            if isinstance(outcome, Exception):
                raise outcome
            return subprocess.CompletedProcess(command, outcome)

        monkeypatch.setattr(bfloat16, "_announces_amx", lambda: announces)
        monkeypatch.setattr(bfloat16.subprocess, "run", run)
        bfloat16.bfloat16_runs.cache_clear()
        return tried

    yield processor
    bfloat16.bfloat16_runs.cache_clear()


def test_a_processor_without_amx_is_not_tried(trial):
    tried = trial(False, -signal.SIGILL)
    bfloat16.check_bfloat16("cpu")
    assert tried == []


def test_amx_that_works_is_tried_once(trial):
    tried = trial(True, 0)
    bfloat16.check_bfloat16("cpu")
    bfloat16.check_bfloat16("cpu")
    assert len(tried) == 1


def test_amx_that_traps_is_refused_with_the_variable_that_helps(trial):
    trial(True, -signal.SIGILL)
    with pytest.raises(InputError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        bfloat16.check_bfloat16("cpu")


def test_no_answer_is_no_reason_to_refuse(trial):
    trial(True, subprocess.TimeoutExpired("python", 60))
    bfloat16.check_bfloat16("cpu")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_simulate_asks_only_for_bfloat16(trial, precision):
    trial(True, -signal.SIGILL)

    def start():
        return fedlama.simulate(
            lambda: fedlama.models.mlp(hidden=(4,)),
            fedlama.data.digits(),
            policy=fedlama.FedAvg(2),
            local=fedlama.SGD(0.1, 4),
            partition=fedlama.IID(4),
            iterations=2,
            precision=precision,
        )

    if precision == "float32":
        assert start().records
    else:
        with pytest.raises(InputError, match="announces AMX"):
            start()


def test_this_machine_survives_its_own_product():
    """With the limit that `conftest.py` sets where it is needed."""
    bfloat16.bfloat16_runs.cache_clear()
    assert bfloat16.bfloat16_runs()
