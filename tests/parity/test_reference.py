"""`simulate` against the naive twin in tests/reference.py: same draws in, same run out."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import fedlama
from fedlama.data import Batches, Natural, arrays
from fedlama.server.exclusions import FAILED_DURING, LATE
from reference import fedlama as twin

# No client ends an epoch with a batch of one, which BatchNorm refuses, nor of two, which it turns into ±1: that, like
# ReLU's kink or a large learning rate, would blow last bits up until two right answers differ.
SAMPLES = (7, 8, 11, 15, 12)
BATCH = 4
SEED = 5


def network():
    return nn.Sequential(
        nn.Linear(6, 12),
        nn.BatchNorm1d(12),
        nn.Tanh(),
        nn.Linear(12, 8),
        nn.Tanh(),
        nn.Linear(8, 3, bias=False),
    )


def samples():
    generator = torch.Generator().manual_seed(1)
    owners = torch.arange(len(SAMPLES)).repeat_interleave(torch.tensor(SAMPLES))
    x = torch.randn(sum(SAMPLES), 6, generator=generator) + owners[:, None] * 0.3
    y = torch.randint(0, 3, (sum(SAMPLES),), generator=generator)
    return arrays(x, y, x, y, clients=owners)


def plain_network():
    """Without BatchNorm: clients of such a small model may be trained in stacks."""
    return nn.Sequential(
        nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)
    )


def both(
    policy,
    *,
    participation=1.0,
    window=None,
    iterations,
    weights="uniform",
    network=network,
    execution="one-by-one",
    faults=None,
    fates=None,
    **rule,
):
    """The run and its twin; they start from the same weights because the twin is handed a copy of the built module."""
    data, built = samples(), []
    participation = fedlama.Participation.from_active(participation, window)
    shards = Natural().assign(data, SEED)

    def build():
        module = network()
        built.append(deepcopy(module))
        return module

    result = fedlama.simulate(
        build,
        data,
        policy=policy,
        local=fedlama.SGD(0.05, BATCH, **rule),
        participation=participation,
        iterations=iterations,
        weights=weights,
        seed=SEED,
        execution=execution,
        faults=faults,
    )
    model = built[0].train()
    expected = twin(
        model,
        batch=Batches(data, shards, BATCH, SEED).at,
        cohort=lambda window: participation.cohort(len(SAMPLES), SEED, window),
        samples=SAMPLES if weights == "samples" else (1,) * len(SAMPLES),
        base_interval=policy.base_interval,
        increase_factor=policy.increase_factor,
        iterations=iterations,
        window=participation.window_steps(policy),
        learning_rate=0.05,
        momentum=rule.get("momentum", 0.0),
        decay=rule.get("weight_decay", 0.0),
        **(fates or {}),
    )
    return result, expected, model


EVERYTHING = {"participation": 3, "window": 12, "momentum": 0.9, "weight_decay": 0.01}
RUNS = {
    "FedAvg": (fedlama.FedAvg(3), {"iterations": 12}),
    "FedAvg, cut": (fedlama.FedAvg(3), {"iterations": 11, "participation": 2}),
    "full participation, plain SGD": (fedlama.FedLAMA(2, 2), {"iterations": 24}),
    "weights by samples": (
        fedlama.FedLAMA(2, 2),
        {"iterations": 24, "weights": "samples"},
    ),
    "everything": (fedlama.FedLAMA(2, 3), {"iterations": 48, **EVERYTHING}),
    "everything by samples": (
        fedlama.FedLAMA(2, 3),
        {"iterations": 48, "weights": "samples", **EVERYTHING},
    ),
    "ends with a round inside a cycle": (
        fedlama.FedLAMA(2, 3),
        {"iterations": 40, **EVERYTHING},
    ),
    "ends inside a round": (
        fedlama.FedLAMA(2, 3),
        {"iterations": 45, "weights": "samples", **EVERYTHING},
    ),
    "a new cohort every cycle": (
        fedlama.FedLAMA(1, 4),
        {"iterations": 18, "participation": 0.4, "momentum": 0.5},
    ),
}


# Who fails when, for both: client 0 sleeps through every other cycle, client 1 leaves at steps 9 and 31, client 2 is
# late in the rounds to steps 4, 16 and 40, client 3 returns NaN with step 20, and client 4 infinity with steps 3 and 43
def fails_before(client, step):
    return client == 0 and step // 6 % 2 == 1


def fate(client, first, last):
    steps = {1: {9, 31}, 2: {4, 16, 40}, 3: {20}, 4: {3, 43}}.get(client, set())
    if not any(first < step <= last for step in steps):
        return None
    return "silent" if client == 1 else "refused"


class Scripted(fedlama.Faults):
    def fails_before(self, stretch, client):
        return fails_before(client, stretch.cycle.start)

    def misses(self, stretch, client):
        happens = fate(client, stretch.steps.start, stretch.steps.stop) is not None
        return {1: FAILED_DURING, 2: LATE}.get(client) if happens else None

    def broken_number(self, stretch, client):
        happens = fate(client, stretch.steps.start, stretch.steps.stop) is not None
        return {3: float("nan"), 4: float("-inf")}.get(client) if happens else None


FAULTS = {
    "faults": Scripted(corrupt=0.5),
    "fates": {"fails_before": fails_before, "fate": fate},
}
RUNS |= {
    "faults": (fedlama.FedLAMA(2, 3), {"iterations": 48, **FAULTS}),
    "faults, several cycles a window": (
        fedlama.FedLAMA(2, 3),
        {
            "iterations": 45,
            "weights": "samples",
            **EVERYTHING,
            "participation": 4,
            **FAULTS,
        },
    ),
}


@pytest.fixture(scope="module", params=RUNS.values(), ids=RUNS.keys())
def run(request):
    policy, settings = request.param
    return both(policy, **settings)


def test_rounds_are_the_same(run):
    result, expected, _ = run
    for name, key in (("step", "step"), ("due", "due"), ("intervals", "intervals")):
        assert [getattr(record, name) for record in result.records] == [
            entry[key] for entry in expected["rounds"]
        ]


def test_those_left_out_are_the_same(run):
    result, expected, _ = run
    left: dict[int, set[int]] = {}  # cycle → who was left out of it so far
    for record, entry in zip(result.records, expected["rounds"], strict=True):
        absent = left.setdefault(record.cycle, set())
        # Named once per cycle
        assert not absent & {one["client"] for one in record.excluded}
        absent |= {one["client"] for one in record.excluded}
        assert not absent & set(entry["averaged"])
        assert len(absent) + len(entry["averaged"]) in {len(SAMPLES), 4, 3, 2}


def test_weights_and_statistics_are_the_same(run):
    result, _, model = run
    measured, expected = result.model.state_dict(), model.state_dict()
    assert list(measured) == list(expected)
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            assert torch.allclose(measured[name], tensor, rtol=1e-4, atol=1e-5), name


def test_discrepancies_and_losses_are_the_same(run):
    result, expected, _ = run
    for record, entry in zip(result.records, expected["rounds"], strict=True):
        assert [value is None for value in record.discrepancy] == [
            value is None for value in entry["discrepancy"]
        ]
        measured = [value for value in record.discrepancy if value is not None]
        assert measured == pytest.approx(
            [value for value in entry["discrepancy"] if value is not None], rel=1e-4
        )
        assert record.loss == pytest.approx(entry["loss"], rel=1e-5)


def test_costs_and_bytes_are_the_same(run):
    result, expected, _ = run
    assert [record.uplink_bytes for record in result.records] == [
        entry["up"] for entry in expected["rounds"]
    ]
    assert [record.downlink_bytes for record in result.records] == [
        entry["down"] for entry in expected["rounds"]
    ]
    assert {layer.name: layer.aggregations for layer in result.layers} == expected[
        "aggregations"
    ]
    assert {layer.name: layer.interval for layer in result.layers} == expected[
        "intervals"
    ]
    parameters = sum(layer.size for layer in result.layers)
    base = result.records[-1].intervals[1]  # that of a bias, which is never adapted
    assert result.cost == expected["cost"] / (
        -(-result.iterations // base) * parameters
    )


def test_the_comparison_sees_layers_of_both_intervals_that_change():
    policy, settings = RUNS["everything"]
    result, expected, _ = both(policy, **settings)
    intervals = {tuple(record.intervals) for record in result.records}
    assert len(intervals) > 2  # more than the start and one adjustment that then stays
    assert any(len(entry["due"]) < len(result.layers) for entry in expected["rounds"])


def test_the_count_of_batches_goes_on_over_windows():
    result, _, _ = both(fedlama.FedLAMA(2, 3), iterations=40, **EVERYTHING)
    # BatchNorm saw one batch a step, whoever trained
    assert result.model[1].num_batches_tracked == 40


def test_tensors_too_large_for_the_gradient_row_are_trained_the_same(monkeypatch):
    # The kernels have 72, 96 and 24 numbers, all else up to 12
    monkeypatch.setattr("fedlama.rows.binding.LARGE", 20)
    run = both(fedlama.FedLAMA(2, 3), iterations=16, **EVERYTHING)
    test_weights_and_statistics_are_the_same(run)
    test_discrepancies_and_losses_are_the_same(run)


# Two stacks of which the second is padded, and one that is
@pytest.mark.parametrize("block", [2, 8])
def test_clients_trained_in_stacks_are_trained_the_same(monkeypatch, block):
    monkeypatch.setattr("fedlama.training.trainers.stacked.BLOCK", block)
    options = {
        "iterations": 40,
        "weights": "samples",
        "network": plain_network,
        **EVERYTHING,
    }
    run = both(fedlama.FedLAMA(2, 3), execution="stacked", **options)
    test_rounds_are_the_same(run)
    test_weights_and_statistics_are_the_same(run)
    test_discrepancies_and_losses_are_the_same(run)
    test_costs_and_bytes_are_the_same(run)


def test_faults_in_stacks_are_the_same():
    run = both(
        fedlama.FedLAMA(2, 3),
        execution="stacked",
        network=plain_network,
        iterations=45,
        **EVERYTHING,
        **FAULTS,
    )
    for compare in (
        test_rounds_are_the_same,
        test_those_left_out_are_the_same,
        test_weights_and_statistics_are_the_same,
        test_discrepancies_and_losses_are_the_same,
        test_costs_and_bytes_are_the_same,
    ):
        compare(run)
