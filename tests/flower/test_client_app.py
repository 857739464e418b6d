"""What people hand to a client app who write their first one, and what they are told."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

import fedlama
from fedlama.base import InputError, RunError
from fedlama.data import digits
from fedlama.flower import client_app, layerwise
from flower.grid import MemoryGrid
from flower.test_strategy import CLIENTS, LOCAL, network, strategy, train

X, Y = digits().x_train, digits().y_train
NOT_A_FUNCTION = "model must be a function without arguments"


def test_a_module_in_place_of_a_function_is_refused_at_once():
    with pytest.raises(InputError, match=NOT_A_FUNCTION):
        client_app(network(), digits(), local=LOCAL)
    with pytest.raises(InputError, match=NOT_A_FUNCTION):
        layerwise(network())(lambda module, steps, context: 0.5)


@pytest.mark.parametrize("data", [(X, Y), TensorDataset(X, Y), None, TensorDataset])
def test_what_is_no_data_is_refused_at_once(data):
    sentence = r"^data must be made with fedlama\.data\.arrays\(x, y, None, None\), or be a function"
    with pytest.raises(InputError, match=sentence):
        client_app(network, data, local=LOCAL)


@pytest.mark.parametrize("returned", [(X, Y), TensorDataset(X, Y), None])
def test_what_a_function_returns_is_refused_before_anyone_trains(returned):
    grid = MemoryGrid(client_app(network, lambda context: returned, local=LOCAL), [0])
    sentence = r"what data\(context\) returns must be made with fedlama\.data\.arrays"
    with pytest.raises(RunError, match=sentence):
        train(grid, strategy(clients=None, wait=0.1), iterations=2)
    assert not [kind for _, kind, *_ in grid.sent if kind == "train"]


def test_a_model_that_is_none_is_said_by_the_client():
    grid = MemoryGrid(client_app(lambda: None, digits(), local=LOCAL), [0])
    with pytest.raises(RunError, match=r"must build an nn\.Module, .* NoneType"):
        train(grid, strategy(clients=None, on_too_few="stop"), iterations=2)


def test_a_client_needs_no_test_samples():
    def load_data(context):
        client = context.node_config["partition-id"]
        return fedlama.data.arrays(X[client::CLIENTS], Y[client::CLIENTS], None, None)

    plan = strategy()
    grid = MemoryGrid(client_app(network, load_data, local=LOCAL), range(CLIENTS))
    train(grid, plan, iterations=2)
    assert plan.records[0].excluded == []
    with pytest.raises(InputError, match="data has no test samples"):
        fedlama.simulate(
            network,
            fedlama.data.arrays(X, Y, None, None),
            policy=fedlama.FedAvg(2),
            local=LOCAL,
            iterations=2,
        )
    with pytest.raises(InputError, match="y_test"):
        fedlama.data.arrays(X, Y, X, None)


@pytest.mark.parametrize(
    "loss",
    [
        0.5,
        np.float32(0.5),
        torch.tensor(0.5, requires_grad=True),
        torch.tensor([0.5]),
    ],
)
def test_a_loss_is_a_number_of_any_kind(loss):
    plan = strategy()
    app = layerwise(network)(lambda module, steps, context: loss)
    train(MemoryGrid(app, range(CLIENTS)), plan, iterations=2)
    assert plan.records[0].loss == 0.5


@pytest.mark.parametrize("loss", [None, "0.5", torch.zeros(2)])
def test_what_is_no_loss_is_refused(loss):
    app = layerwise(network)(lambda module, steps, context: loss)
    with pytest.raises(RunError, match="must return its mean loss, a number, not"):
        train(
            MemoryGrid(app, range(CLIENTS)), strategy(on_too_few="stop"), iterations=2
        )
