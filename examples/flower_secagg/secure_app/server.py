"""The server: Flower's SecAgg+ gives it the average of what clients sent, and fedlama's Server goes on from there.

d_l of a layer is Σ w‖x_i − u‖² = Σ w‖Δ_i‖² − ‖Σ wΔ_i‖². Both sums are what secure aggregation reveals anyway.
"""

import json
from pathlib import Path

import torch
from flwr.app import Context
from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import Strategy
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

from fedlama.core import Traffic
from fedlama.data import digits
from fedlama.flower import initial_arrays
from fedlama.rows import Binding, describe, pack
from fedlama.server import Server
from secure_app.task import CLIENTS, LEVELS, POLICY, RANGE, SEED, network

app = ServerApp()


class SumsReduce:
    """What a server learns from two sums: the mean difference of the due layers, and the mean of its squared norms."""

    clients = CLIENTS

    def __init__(self, layout, anchor, difference, squares):
        self.layout = layout
        self.anchor = anchor
        self.difference = difference
        self.squares = squares

    def mean(self, slices):
        return pack(self.anchor, slices) + self.difference

    def spread(self, mean, due):
        spread = {}
        for layer, square in zip(due, self.squares, strict=True):
            moved = pack(mean - self.anchor, self.layout.layers[layer].slices).double()
            spread[layer] = max(0.0, square - float(moved.square().sum()))
        return spread


class SecureFedLAMA(Strategy):
    """FedLAMA as a strategy of Flower's older interface, which SecAgg+ needs. All clients take part in all rounds."""

    def __init__(self, rounds: int) -> None:
        self.module = network()
        self.module.load_state_dict(initial_arrays(network, SEED).to_torch_state_dict())
        self.layout = describe(self.module, "tensor")
        self.binding = Binding(self.module, self.layout)
        self.server = Server(self.layout, POLICY)
        self.state = self.server.start(self.binding.read())
        self.iterations = rounds * POLICY.base_interval
        self.plan = self.server.plan(self.state, self.iterations)
        # The whole model at first, then what was averaged last
        self.sent = list(range(len(self.layout.layers)))
        self.intervals = []
        self.accuracy = 0.0

    def initialize_parameters(self, client_manager):
        return ndarrays_to_parameters(
            [pack(self.state.row, self.layout.slices_of(self.sent)).numpy()]
        )

    def configure_fit(self, server_round, parameters, client_manager):
        client_manager.wait_for(CLIENTS)
        task = {
            "step": self.state.step,
            "steps": self.plan.steps,
            "sent": self.sent,
            "due": list(self.plan.due),
        }
        instructions = FitIns(parameters, {"task": json.dumps(task)})
        return [(client, instructions) for client in client_manager.sample(CLIENTS)]

    def aggregate_fit(self, server_round, results, failures):
        if failures or len(results) != CLIENTS:
            raise RuntimeError(
                f"{len(results)} of {CLIENTS} clients replied: {failures}"
            )
        # SecAgg+ puts the average in the place of every client's parameters.
        difference, squares = parameters_to_ndarrays(results[0][1].parameters)
        self.intervals.append(list(self.state.policy_state.intervals))
        reduce = SumsReduce(
            self.layout,
            self.state.row,
            torch.from_numpy(difference).float(),
            [float(square) for square in squares],
        )
        up = self.state.ledger.plain_message(self.plan.due).times(CLIENTS)
        self.state = self.server.close(self.state, self.plan, reduce, Traffic(up=up))
        self.sent = list(self.plan.due)
        if self.state.step < self.iterations:
            self.plan = self.server.plan(self.state, self.iterations)
        return self.initialize_parameters(None), {}

    def evaluate(self, server_round, parameters):
        data = digits()
        self.binding.point_at(self.state.row.clone())
        with torch.no_grad():
            outputs = self.module(data.inputs(data.x_test))
        self.accuracy = float((outputs.argmax(dim=1) == data.y_test).double().mean())
        loss = float(torch.nn.functional.cross_entropy(outputs, data.y_test))
        return loss, {"accuracy": self.accuracy}

    def configure_evaluate(self, server_round, parameters, client_manager):
        return []

    def aggregate_evaluate(self, server_round, results, failures):
        return None, {}


@app.main()
def main(grid: Grid, context: Context) -> None:
    rounds = int(context.run_config["rounds"])
    strategy = SecureFedLAMA(rounds)
    secure = SecAggPlusWorkflow(
        num_shares=1.0,
        reconstruction_threshold=0.75,
        max_weight=1.0,
        clipping_range=RANGE,
        quantization_range=LEVELS,
    )
    workflow = DefaultWorkflow(fit_workflow=secure)
    workflow(grid, LegacyContext(context, ServerConfig(num_rounds=rounds), strategy))
    path = context.run_config["save-to"]
    if path:
        outcome = {
            "intervals": strategy.intervals,
            "accuracy": strategy.accuracy,
            "aggregations": list(strategy.state.ledger.aggregations),
            "model": {
                name: values.tolist()
                for name, values in strategy.module.state_dict().items()
            },
        }
        Path(path).write_text(json.dumps(outcome))
