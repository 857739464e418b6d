"""The options of a run have one home: Python, configuration files, `--set` and studies refuse the same values."""

from inspect import signature
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedlama
from fedlama import SGD, FedAvg, InputError, data
from fedlama.api import simulate as front_door
from fedlama.base import MAX_SEED, MAX_WHOLE, annotated_fields
from fedlama.run.config import parse_config
from fedlama.run.overrides import apply_overrides
from fedlama.run.tables import EvaluateSection, ModelSection, TrainSection
from fedlama.study.study_file import parse_study
from fedlama.training.options import RunOptions

OPTIONS = tuple(annotated_fields(RunOptions))
SMALLEST = {"data": {"name": "digits"}, "train": {"iterations": 8}}
KEYS = {
    "iterations": "train.iterations",
    "seed": "seed",
    "weights": "train.weights",
    "layers": "model.layers",
    "adaptive": "model.adaptive",
    "evaluate_every": "train.evaluate_every",
    "evaluate": "train.evaluate",
    "evaluate_clients": "evaluate.clients",
    "evaluate_average": "evaluate.average",
    "average_steps": "train.average_steps",
    "device": "train.device",
    "execution": "train.execution",
    "precision": "train.precision",
    "checkpoint_minutes": "train.checkpoint_minutes",
}
WHOLE = (-1, 0, 1, MAX_WHOLE, MAX_WHOLE + 1, MAX_SEED, MAX_SEED + 1)
CANDIDATES = {
    "iterations": WHOLE,
    "seed": WHOLE,
    "evaluate_every": WHOLE,
    "average_steps": WHOLE,
    "checkpoint_minutes": (-1.0, -1e-300, 0.0, 5.0, 1e300, float("inf")),
    "weights": ("uniform", "samples", "uniforms"),
    "layers": ("tensor", "module", "layer"),
    "evaluate": ("model", "ema", "both"),
    "execution": ("auto", "stacked", "one-by-one", "fast"),
    "precision": ("float32", "bfloat16", "float16"),
}
CASES = [(name, value) for name, values in CANDIDATES.items() for value in values]


class ReachedError(Exception):
    """The arguments were taken: what would be trained comes next."""


def refuses(call, *arguments, **options) -> bool:
    try:
        call(*arguments, **options)
    except InputError:
        return True
    except ReachedError:
        return False
    return False


def tables_with(name: str, value: object) -> dict:
    tables = {table: dict(keys) for table, keys in SMALLEST.items()}
    *path, key = KEYS[name].split(".")
    table = tables
    for part in path:
        table = table.setdefault(part, {})
    table[key] = value
    return tables


def in_a_file(name, value):
    parse_config(tables_with(name, value))


def in_an_override(name, value):
    parse_config(apply_overrides(SMALLEST, [f"{KEYS[name]}={value}"]))


def in_a_study(name, value):
    parse_study({**tables_with(name, value), "study": {"setting": [{}]}})


def in_python(name, value):
    RunOptions(**{"iterations": 8, name: value})


def in_simulate(name, value):
    arguments = {"policy": FedAvg(2), "local": SGD(0.1, 4), "iterations": 8}
    fedlama.simulate(
        lambda: nn.Linear(64, 10), data.digits(), **{**arguments, name: value}
    )


@pytest.fixture
def no_training(monkeypatch):
    def reached(*arguments, **options):
        raise ReachedError

    monkeypatch.setattr(front_door, "simulate_in_memory", reached)


@pytest.mark.parametrize(("name", "value"), CASES)
def test_what_one_way_refuses_the_others_refuse(no_training, name, value):
    refused = refuses(in_python, name, value)
    assert refuses(in_a_file, name, value) == refused
    assert refuses(in_an_override, name, value) == refused
    assert refuses(in_a_study, name, value) == refused
    if name == "precision" and not refused:
        return  # Whether this machine can compute in it is another question
    assert refuses(in_simulate, name, value) == refused


@pytest.mark.parametrize("name", KEYS)
@given(value=st.integers() | st.floats() | st.booleans() | st.text(max_size=3))
def test_a_file_takes_what_the_class_takes(name, value):
    if not refuses(in_a_file, name, value):
        in_python(name, value)
    # Python converts more than a file.
    default = getattr(RunOptions(iterations=8), name)
    if type(value) is type(default) and not refuses(in_python, name, value):
        in_a_file(name, value)


def test_the_front_door_has_every_option_with_its_type_and_default():
    public = signature(fedlama.simulate).parameters
    types = get_type_hints(fedlama.simulate)
    own_types = get_type_hints(RunOptions)
    for name, own in signature(RunOptions).parameters.items():
        assert public[name].default == own.default
        assert types[name] == own_types[name]


def test_every_option_is_in_one_table_of_the_file():
    assert tuple(KEYS) == OPTIONS
    homes = []
    for table, section in [
        ("", type(parse_config(SMALLEST))),
        ("model.", ModelSection),
        ("train.", TrainSection),
        ("evaluate.", EvaluateSection),
    ]:
        for option, key in section.keys_by_option.items():
            assert KEYS[option] == f"{table}{key}"
            homes.append(option)
    assert sorted(homes) == sorted(OPTIONS)


def test_a_configuration_and_its_options_are_the_same():
    options = RunOptions(
        iterations=9,
        seed=3,
        weights="samples",
        layers="module",
        adaptive=["0.*"],
        evaluate_every=2,
        evaluate="ema",
        evaluate_clients=True,
        average_steps=7,
        device="cpu",
        execution="one-by-one",
        precision="bfloat16",
        checkpoint_minutes=0.0,
    )
    config = parse_config(
        {
            "data": {"name": "digits"},
            **type(parse_config(SMALLEST)).table_of_options(options),
            "model": ModelSection.table_of_options(options),
            "train": TrainSection.table_of_options(options),
            "evaluate": EvaluateSection.table_of_options(options),
        }
    )
    assert config.options == options
    assert parse_config(SMALLEST).options == RunOptions(iterations=8)


# The keys of a study that say the same of a run.


def study_with(key, value):
    parse_study({**SMALLEST, "study": {"setting": [{}], key: value}})


@pytest.mark.parametrize(
    "rate", [0.0, -1.0, 1e-300, 0.1, 3.3e38, 3.4e38, 1e39, float("inf"), float("nan")]
)
def test_a_study_tries_the_learning_rates_that_a_run_takes(rate):
    refused = refuses(SGD, rate, 4)
    assert refuses(study_with, "learning_rates", [0.1, rate]) == refused
    local = {"local": {"learning_rate": rate}}
    assert refuses(parse_config, {**SMALLEST, **local}) == refused
    setting = {"name": "one", "learning_rates": [rate]}
    study = {**SMALLEST, "study": {"setting": [setting]}}
    assert refuses(parse_study, study) == refused


@pytest.mark.parametrize("value", WHOLE)
def test_a_study_takes_the_whole_numbers_that_a_run_takes(value):
    seed = refuses(in_python, "seed", value)
    assert refuses(study_with, "seeds", [value]) == seed
    assert refuses(study_with, "pilot_seeds", [value]) == seed
    steps = refuses(in_python, "iterations", value)
    assert refuses(study_with, "pilot_iterations", value) == steps
    interval = refuses(FedAvg, value)
    assert refuses(study_with, "fedavg_intervals", [value]) == interval


def test_the_sentence_names_the_limit():
    with pytest.raises(
        InputError, match=r"study\.learning_rates\.1 = 1e\+39: must be below 3\.4e\+38"
    ):
        study_with("learning_rates", [0.1, 1e39])
