"""The client trains as under FedLAMA and hands over its differences and their squared norms, which SecAgg+ masks."""

import json

import torch
from flwr.app import Array, ArrayRecord, Context
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from torch import nn

from fedlama.data import Batches, digits
from fedlama.rows import Binding, describe, pack, unpack
from secure_app.task import BATCH, PARTITION, RATE, SEED, network

# In Flower's state: the client's own row, and every layer as it was last averaged
KEPT = "kept"


class Client(NumPyClient):
    def __init__(self, context: Context) -> None:
        self.context = context
        self.client = int(context.node_config["partition-id"])

    def fit(self, parameters, config):
        task = json.loads(config["task"])
        module = network()
        layout = describe(module, "tensor")
        row, anchor = self.load(layout.width)
        sent = torch.from_numpy(parameters[0].copy())
        for mine in (row, anchor):
            unpack(sent, mine, layout.slices_of(task["sent"]))

        binding = Binding(module, layout)
        binding.point_at(row)
        self.train(module, range(task["step"], task["step"] + task["steps"]))
        row = binding.read()
        self.store(row, anchor)

        difference = row - anchor
        squares = []
        for layer in task["due"]:
            of_layer = pack(difference, layout.layers[layer].slices).double()
            squares.append(float(of_layer.square().sum()))
        due = pack(difference, layout.slices_of(task["due"]))
        # The number of samples and the metrics are not masked, so they are the same for every client: one, and none.
        return [due.numpy(), torch.tensor(squares).numpy()], 1, {}

    def train(self, module: nn.Module, steps: range) -> None:
        data = digits()
        batches = Batches(data, PARTITION.assign(data, SEED), BATCH, SEED)
        for step in steps:
            inputs, targets = batches.at(self.client, step)
            module.zero_grad()
            nn.functional.cross_entropy(module(inputs), targets).backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.sub_(RATE * parameter.grad)

    def load(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        if KEPT not in self.context.state.array_records:
            return torch.zeros(width), torch.zeros(width)
        kept = self.context.state.array_records[KEPT]
        return torch.from_numpy(kept["row"].numpy().copy()), torch.from_numpy(
            kept["anchor"].numpy().copy()
        )

    def store(self, row: torch.Tensor, anchor: torch.Tensor) -> None:
        rows = {"row": Array(row.numpy()), "anchor": Array(anchor.numpy())}
        self.context.state.array_records[KEPT] = ArrayRecord(rows)


def client_fn(context: Context):
    return Client(context).to_client()


app = ClientApp(client_fn, mods=[secaggplus_mod])
