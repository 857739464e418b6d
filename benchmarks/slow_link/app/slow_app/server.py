"""The server: Flower's own FedAvg, or fedlama's strategy with one of several settings."""

import json
import time
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedlama
from fedlama.flower import LayerwiseStrategy, initial_arrays
from slow_app.task import CLIENTS, INTERVAL, SEED, evaluate, network

CYCLE = 4  # rounds
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    if config["setting"] == "flower":
        train_with_flower(grid, config)
        return
    iterations = INTERVAL * config["rounds"]
    # All clients stay for the whole run: nobody is sent the whole model twice.
    cycles = -(-config["rounds"] // CYCLE)
    strategy = LayerwiseStrategy(
        **setting(config["setting"]),
        window=cycles * CYCLE * INTERVAL,
        deadline=config["deadline"],
        seed=SEED,
        evaluate_every=1,
    )
    strategy.start(
        grid,
        initial_arrays(network, SEED),
        iterations=iterations,
        evaluate_fn=lambda number, arrays: MetricRecord(evaluate(arrays)),
        save_to=config["save-to"],
    )


def setting(name):
    if name == "fedlama":
        return {"policy": fedlama.FedLAMA(INTERVAL, CYCLE)}
    chosen = fedlama.presets.frugal(INTERVAL)
    if name == "frugal-both":
        chosen["downlink"] = fedlama.compress.Rotate(0.64)
    return chosen


def train_with_flower(grid, config):
    """Flower's own FedAvg; when each round ended is written in the form of a run directory."""
    folder = Path(config["save-to"])
    folder.mkdir()
    arrays = initial_arrays(network, SEED)
    weight = sum(len(array.data) for array in arrays.values())
    # Every client is sent the whole model in every round, and sends it back.
    per_round = weight * CLIENTS
    moved = {"uplink_bytes": per_round, "downlink_bytes": per_round}
    started = []

    def note(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        scores = evaluate(arrays)
        if not server_round:
            started.append(time.perf_counter())
        else:
            append(folder / "rounds.jsonl", {"round": server_round, **scores, **moved})
            append(
                folder / "timings.jsonl",
                {"round": server_round, "seconds": time.perf_counter() - started[0]},
            )
        return MetricRecord(scores)

    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS
    )
    strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=config["rounds"],
        timeout=3600,
        evaluate_fn=note,
    )
    sent = per_round * config["rounds"]
    append(folder / "summary.json", {"uplink_bytes": sent, "downlink_bytes": sent})


def append(path, values):
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")
