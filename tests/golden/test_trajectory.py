"""A whole small run on the embedded digits, number by number.

A change of these numbers is a change of results: look at the difference, then `pytest --rewrite-golden`.
"""

from dataclasses import asdict

import fedlama

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
