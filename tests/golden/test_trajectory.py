"""A whole small run on the embedded digits, number by number.

A change of these numbers is a change of results: look at the difference, then `pytest --rewrite-golden`.
"""

import math
from dataclasses import asdict

import pytest

import fedlama
from golden_file import assert_golden, write_golden

FIELDS = (
    "round",
    "step",
    "cycle",
    "due",
    "intervals",
    "discrepancy",
    "loss",
    "test_loss",
    "accuracy",
)
BYTES = ("uplink_bytes", "downlink_bytes", "cost")


def trajectory(**changes):
    options = {
        "policy": fedlama.FedLAMA(2, 3),
        "local": fedlama.SGD(0.1, 16, momentum=0.5, weight_decay=1e-3),
        "partition": fedlama.Dirichlet(10, 0.5),
        "participation": 0.4,
        "weights": "samples",
        "iterations": 40,
        "evaluate_every": 6,
        **changes,
    }
    result = fedlama.simulate(
        lambda: fedlama.models.mlp(hidden=(24, 16)), fedlama.data.digits(), **options
    )
    rounds = [
        {name: asdict(record)[name] for name in (*FIELDS, *BYTES)}
        for record in result.records
    ]
    summary = {
        key: value for key, value in result.summary().items() if key != "seconds"
    }
    return [*rounds, summary]


def test_the_trajectory_is_as_it_was(golden):
    golden("digits.json", trajectory())


@pytest.mark.parametrize("is_same_type", [True, False])
def test_only_a_machine_of_the_same_type_is_held_to_the_last_bits(
    monkeypatch, tmp_path, is_same_type
):
    path = tmp_path / "numbers.json"
    write_golden(path, [{"loss": 0.1, "round": 1}])
    if not is_same_type:
        monkeypatch.setattr("golden_file.recorded_on", lambda: {"cpu": "another"})
    assert_golden(path, [{"loss": 0.1, "round": 1}])
    last_bit = [{"loss": math.nextafter(0.1, 1), "round": 1}]
    if is_same_type:
        with pytest.raises(AssertionError, match="the last bits differ"):
            assert_golden(path, last_bit)
    else:
        assert_golden(path, last_bit)
    for too_far in ({"loss": 0.1 * (1 + 2e-4), "round": 1}, {"loss": 0.1, "round": 2}):
        with pytest.raises(AssertionError):
            assert_golden(path, [too_far])
