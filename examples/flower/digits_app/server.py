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


def setting(config):
    """What the run's configuration asks for, as arguments of the strategy."""
    interval = config["base-interval"]
    if config["setting"] == "fedavg":
        return {"policy": fedlama.FedAvg(interval)}
    if config["setting"] == "frugal":
        return fedlama.presets.frugal(interval, config["share"])
    chosen = {"policy": fedlama.FedLAMA(interval, config["increase-factor"])}
    if config["setting"] == "coded":
        chosen["uplink"] = fedlama.compress.ErrorFeedback(fedlama.compress.Rotate(1.6))
        chosen["downlink"] = fedlama.compress.Rotate(4.0)
    return chosen


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    # The same for all settings: clients are drawn as often under FedAvg as under FedLAMA, and the same ones.
    window = config["base-interval"] * config["increase-factor"]
    strategy = LayerwiseStrategy(
        **setting(config),
        clients=config["clients"],
        window=window,
        deadline=config["deadline"],
        seed=config["seed"],
    )
    folder = {}
    if config["save-to"]:
        folder = {"resume_from" if config["resume"] else "save_to": config["save-to"]}
    strategy.start(
        grid,
        initial_arrays(network, config["seed"]),
        iterations=config["iterations"],
        evaluate_fn=evaluate,
        **folder,
    )
