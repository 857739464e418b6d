"""The server: Flower's ServerApp with fedlama's strategy."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

import fedlama
from digits_app.task import network
from fedlama.data import digits
from fedlama.flower import LayerwiseStrategy, initial_arrays

app = ServerApp()


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    data = digits()
    module = network()
    module.load_state_dict(arrays.to_torch_state_dict())
    with torch.no_grad():
        outputs = module(data.inputs(data.x_test))
    right = (outputs.argmax(dim=1) == data.y_test).double().mean()
    loss = torch.nn.functional.cross_entropy(outputs, data.y_test)
    return MetricRecord({"accuracy": float(right), "loss": float(loss)})


def coded(bits):
    return fedlama.compress.ErrorFeedback(fedlama.compress.Rotate(bits)) if bits else None


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    seed = config["seed"]
    strategy = LayerwiseStrategy(
        fedlama.FedLAMA(config["base-interval"], config["increase-factor"]),
        uplink=coded(config["uplink-bits"]),
        downlink=fedlama.compress.Rotate(config["downlink-bits"]) if config["downlink-bits"] else None,
        clients=config["clients"],
        deadline=config["deadline"],
        seed=seed,
    )
    strategy.start(
        grid,
        initial_arrays(network, seed),
        iterations=config["iterations"],
        evaluate_fn=evaluate,
        save_to=config["save-to"] or None,
        resume_from=config["save-to"] if config["resume"] else None,
    )
