"""Clients that say how many samples they have, and may say any number."""

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

import fedlama
from fedlama.base import InputError
from fedlama.flower import layerwise
from flower.grid import MemoryGrid
from flower.test_strategy import CLIENTS, app, network, strategy, train

EPOCHS = fedlama.SGD(learning_rate=0.1, batch_size=8, steps="2 epochs")
LIAR = 2


def claims(samples):
    """What makes a client say another number than it has."""

    def misbehave(partition, message, reply):
        if message.metadata.message_type == "query" and partition == LIAR:
            record = reply.content.config_records.get("fedlama")
            if record is not None and "samples" in record:
                record["samples"] = samples
        return reply

    return misbehave


def moves(module, steps, context):
    # The bias of client c is c + 1 after the round.
    number = context.node_config["partition-id"] + 1
    with torch.no_grad():
        module[4].bias.fill_(float(number))
    return 0.5


def counting(context):
    return (3, 1, 5)[context.node_config["partition-id"]]


def excluded(plan):
    entries = [entry for record in plan.records for entry in record.excluded]
    return {(entry["client"], entry["reason"]) for entry in entries}


@pytest.mark.parametrize("samples", [10**9, 2**62, 301])
def test_a_client_that_claims_too_many_samples_weighs_nothing(samples):
    plan = strategy(fedlama.FedAvg(1), clients=None, weights="samples", wait=0.1)
    grid = MemoryGrid(
        layerwise(network, samples=counting)(moves),
        range(3),
        misbehave=claims(samples),
    )
    result = train(grid, plan, iterations=1)
    bias = result.arrays.to_torch_state_dict()["4.bias"]
    # Three quarters of 1 and a quarter of 2
    torch.testing.assert_close(bias, torch.full((10,), 1.25))
    # The median of 1, 3 and the claim is 3
    ((client, reason),) = excluded(plan)
    assert client == LIAR
    claim = f"refused: it says that it has {samples:,} samples, and at most 300 are"
    assert reason.startswith(claim)


def test_a_hundred_times_the_median_is_believed():
    plan = strategy(fedlama.FedAvg(1), clients=None, weights="samples", wait=0.1)
    grid = MemoryGrid(
        layerwise(network, samples=counting)(moves), range(3), misbehave=claims(300)
    )
    train(grid, plan, iterations=1)
    assert excluded(plan) == set()


def test_a_limit_of_ones_own_holds_in_place_of_the_median():
    plan = strategy(
        fedlama.FedAvg(1), clients=None, weights="samples", wait=0.1, max_samples=4
    )
    grid = MemoryGrid(layerwise(network, samples=counting)(moves), range(3))
    result = train(grid, plan, iterations=1)
    bias = result.arrays.to_torch_state_dict()["4.bias"]
    torch.testing.assert_close(bias, torch.full((10,), 1.25))
    ((client, reason),) = excluded(plan)
    assert client == LIAR
    assert "give LayerwiseStrategy a larger max_samples" in reason
    with pytest.raises(InputError, match="max_samples must be at least 1"):
        strategy(max_samples=0)


def test_where_samples_do_not_count_any_number_may_be_said():
    plan = strategy(fedlama.FedAvg(1), clients=None)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=claims(2**62))
    train(grid, plan, iterations=2)
    assert excluded(plan) == set()


@pytest.mark.parametrize("samples", [10**9, 2**62])
def test_steps_by_epochs_follow_no_claim(samples):
    local = fedlama.FedNova(EPOCHS)
    plan = strategy(fedlama.FedAvg(2), clients=None, local=local, wait=0.1)
    grid = MemoryGrid(app(local), range(CLIENTS), misbehave=claims(samples))
    train(grid, plan, iterations=4)
    assert {client for client, _ in excluded(plan)} == {LIAR}
    assert plan.records[-1].test_loss < 10
