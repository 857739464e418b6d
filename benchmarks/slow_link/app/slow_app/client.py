"""The client: fedlama's own, and the same steps for Flower's own FedAvg."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedlama.data import Batches
from fedlama.flower import client_app
from slow_app.task import BATCH, INTERVAL, LOCAL, PARTITION, RATE, SEED, data, network

ours = client_app(network, lambda context: data(), local=LOCAL, partition=PARTITION)
FLOWERS_ARRAYS = "arrays"
app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    return ours(message, context)


@app.train()
def train(message: Message, context: Context) -> Message:
    # Flower's own FedAvg calls its record so; fedlama's strategy has none of this name.
    if FLOWERS_ARRAYS not in message.content:
        return ours(message, context)
    torch.set_num_threads(1)
    client = int(context.node_config["partition-id"])
    samples = data()
    shards = PARTITION.assign(samples, SEED)
    batches = Batches(samples, shards, BATCH, SEED)
    module = network()
    module.load_state_dict(message.content[FLOWERS_ARRAYS].to_torch_state_dict())
    last = int(message.content["config"]["server-round"]) * INTERVAL
    for step in range(last - INTERVAL, last):
        inputs, targets = batches.at(client, step)
        module.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.sub_(RATE * parameter.grad)
    metrics = MetricRecord({"num-examples": shards.size_of(client)})
    content = RecordDict(
        {"arrays": ArrayRecord(module.state_dict()), "metrics": metrics}
    )
    return Message(content, reply_to=message)
