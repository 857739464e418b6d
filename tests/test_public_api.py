"""The names and signatures that programs of others rely on: a change here is a change for every user."""

import inspect
import json
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
import torch
from torch.distributed.algorithms.model_averaging.averagers import ModelAverager

import fedlama

IID32 = fedlama.IID(32)
EMPTY = inspect.Parameter.empty
BY_POSITION, BY_NAME = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def parameters(callable_, kind) -> dict:
    """Name → default of the parameters of one kind, in order."""
    found = inspect.signature(callable_).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in found
        if parameter.kind is kind
    }


def test_adjust_intervals():
    assert parameters(fedlama.adjust_intervals, BY_POSITION) == {
        "discrepancy": EMPTY,
        "sizes": EMPTY,
    }
    assert parameters(fedlama.adjust_intervals, BY_NAME) == {
        "base_interval": EMPTY,
        "increase_factor": EMPTY,
        "adaptive": None,
        "current": None,
        "rule": "crossing",
    }
    intervals = fedlama.adjust_intervals(
        [4.0, 1.0, 2.0], [10, 80, 10], base_interval=6, increase_factor=4
    )
    assert intervals == [6, 24, 6]
    assert type(intervals) is list


@pytest.mark.parametrize("rule", ["crossing", "released", "printed", "accelerate"])
def test_the_rules_have_these_names(rule):
    fedlama.adjust_intervals(
        [1.0, 2.0], [1, 1], base_interval=4, increase_factor=2, rule=rule
    )
    assert fedlama.FedLAMA(4, 2, rule=rule).rule == rule


def test_faults():
    assert parameters(fedlama.Faults, BY_POSITION) == {
        "fail_before": 0.0,
        "fail_during": 0.0,
        "straggle": 0.0,
        "corrupt": 0.0,
        "exclude_nonfinite": True,
        "norm_limit": None,
        "min_clients": 1,
        "on_too_few": "repeat",
    }
    assert parameters(fedlama.simulate, BY_NAME)["faults"] is None


def test_simulate():
    assert parameters(fedlama.simulate, BY_POSITION) == {"model": EMPTY, "data": EMPTY}
    by_name = parameters(fedlama.simulate, BY_NAME)
    contract = {
        "policy": EMPTY,
        "local": EMPTY,
        "partition": None,
        "participation": 1.0,
        "iterations": EMPTY,
        "seed": 0,
        "workers": 1,
    }
    assert {name: by_name[name] for name in contract} == contract
    assert all(
        default is not EMPTY
        for name, default in by_name.items()
        if name not in contract
    )


def test_data_arrays():
    contract = {
        "x_train": EMPTY,
        "y_train": EMPTY,
        "x_test": EMPTY,
        "y_test": EMPTY,
        "clients": None,
    }
    assert parameters(fedlama.data.arrays, BY_POSITION) == contract


def test_sgd():
    by_position = parameters(fedlama.SGD, BY_POSITION)
    contract = {
        "learning_rate": EMPTY,
        "batch_size": EMPTY,
        "momentum": 0.0,
        "weight_decay": 0.0,
    }
    assert dict(list(by_position.items())[:4]) == contract
    assert fedlama.SGD(0.1, 32) == fedlama.SGD(learning_rate=0.1, batch_size=32)


def test_partitions():
    assert parameters(fedlama.IID, BY_POSITION) == {"clients": EMPTY}
    assert list(parameters(fedlama.Dirichlet, BY_POSITION))[:2] == ["clients", "alpha"]
    assert parameters(fedlama.Dirichlet, BY_POSITION)["min_samples"] == 10
    assert parameters(fedlama.Natural, BY_POSITION) == {"clients": None}


def test_policies():
    assert parameters(fedlama.FedAvg, BY_POSITION) == {"interval": EMPTY}
    contract = {
        "base_interval": EMPTY,
        "increase_factor": EMPTY,
        "rule": "crossing",
        "warmup_rounds": 0,
    }
    assert parameters(fedlama.FedLAMA, BY_POSITION) == contract


def test_the_averager_is_a_model_averager_of_torch():
    assert issubclass(fedlama.LayerwiseModelAverager, ModelAverager)
    by_position = parameters(fedlama.LayerwiseModelAverager, BY_POSITION)
    contract = {
        "module": EMPTY,
        "base_interval": None,  # needed, unless there is a policy
        "increase_factor": None,
        "warmup_steps": 0,
        "process_group": None,
    }
    assert by_position == contract
    assert list(
        parameters(fedlama.LayerwiseModelAverager.average_parameters, BY_POSITION)
    ) == ["self", "params"]


def test_result_and_record_have_the_fields_of_the_contract():
    result = {field.name for field in fields(fedlama.Result)}
    contract = {
        "accuracy",
        "loss",
        "cost",
        "uplink_bytes",
        "downlink_bytes",
        "statistics_bytes",
    }
    assert result >= {*contract, "layers", "records", "model"}
    record = {field.name for field in fields(fedlama.Record)}
    assert record >= {
        "round",
        "step",
        "cycle",
        "due",
        "intervals",
        "discrepancy",
        "loss",
        "accuracy",
    }
    assert record >= {"uplink_bytes", "downlink_bytes", "excluded"}


def test_a_program_written_from_the_contract_alone():
    generator = np.random.default_rng(0)
    x, y = (
        generator.normal(size=(60, 6)).astype("float32"),
        generator.integers(0, 3, 60),
    )
    data = fedlama.data.arrays(
        x[:48],
        y[:48],
        torch.from_numpy(x[48:]),
        torch.from_numpy(y[48:]),
        clients=y[:48],
    )
    result = fedlama.simulate(
        lambda: torch.nn.Linear(6, 3),
        data,
        policy=fedlama.FedLAMA(2, 2),
        local=fedlama.SGD(0.1, 8),
        iterations=8,
    )
    assert 0 <= result.accuracy <= 1
    assert result.loss > 0
    assert 0 < result.cost <= 1
    assert result.uplink_bytes > 0
    assert result.downlink_bytes > 0
    assert [layer.name for layer in result.layers] == ["weight", "bias"]
    assert result.records[-1].step == 8
    assert result.model(data.x_test).shape == (12, 3)


def test_without_a_partition_it_does_what_a_configuration_does():
    x, y = np.zeros((64, 2), "float32"), np.zeros(64, "int64")
    arguments = {
        "policy": fedlama.FedAvg(1),
        "local": fedlama.SGD(0.1, 2),
        "iterations": 1,
    }
    plain = fedlama.data.arrays(x, y, x, y)
    alike = fedlama.simulate(lambda: torch.nn.Linear(2, 1), plain, **arguments)
    assert (
        alike.records
        == fedlama.simulate(
            lambda: torch.nn.Linear(2, 1), plain, partition=IID32, **arguments
        ).records
    )
    owned = fedlama.data.arrays(x, y, x, y, clients=np.arange(64) % 4)
    natural = fedlama.simulate(lambda: torch.nn.Linear(2, 1), owned, **arguments)
    assert natural.uplink_bytes * 8 == alike.uplink_bytes


def test_errors_are_the_ones_python_users_catch():
    assert issubclass(fedlama.InputError, ValueError)
    assert issubclass(fedlama.RunError, RuntimeError)


def test_dir_lists_the_public_names_and_each_of_them_is_there():
    contract = {
        *(
            "adjust_intervals",
            "simulate",
            "data",
            "SGD",
            "IID",
            "Dirichlet",
            "FedAvg",
            "FedLAMA",
        ),
        *("LayerwiseModelAverager", "Result", "__version__"),
    }
    assert contract <= set(dir(fedlama))
    assert set(dir(fedlama)) == set(fedlama.__all__)
    for name in dir(fedlama):
        assert getattr(fedlama, name) is not None


def test_a_name_that_is_not_there():
    with pytest.raises(
        AttributeError, match="module 'fedlama' has no attribute 'FedProxx'"
    ):
        _ = fedlama.FedProxx


def test_public_objects_say_what_they_are():
    for name in set(fedlama.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(fedlama, name)), name


def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(finished.stdout))


@pytest.mark.parametrize(
    "code",
    [
        "import fedlama; dir(fedlama); fedlama.__version__",
        "import fedlama; fedlama.adjust_intervals([1.0], [1], base_interval=2, increase_factor=2); fedlama.FedAvg(2)",
        "import fedlama.cli",
    ],
)
def test_what_needs_no_torch_does_not_import_it(code):
    assert not {"torch", "numpy", "matplotlib"} & modules_after(code)
