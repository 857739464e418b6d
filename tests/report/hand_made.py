"""Run directories written by hand: every number in them is chosen, none is trained."""

import json

from fedlama.run.toml import to_toml
from fedlama.study.runs import load_run

BASE_INTERVAL, FACTOR, ROUNDS = 6, 4, 8
LAYERS = {"conv.weight": 80, "conv.bias": 4, "fc.weight": 16}


def write_run(
    path,
    *,
    policy="fedlama",
    seed=0,
    accuracy=0.9,
    layers=LAYERS,
    long=(),
    finished=True,
    bits=32,
    more=None,
    **changes,
):
    """Eight rounds of six steps; the layers in `long` are averaged at the end of each cycle of four only.

    The accuracy climbs from half of `accuracy` after the first cycle to `accuracy` after the second.
    Two clients send `bits` for each number and receive four bytes. `changes` are entries of the config, as in
    `data={"name": "digits"}`, and `more` are entries of the summary.
    """
    path.mkdir(parents=True)
    interval = BASE_INTERVAL * FACTOR if policy == "slow" else BASE_INTERVAL
    (path / "config.toml").write_text(to_toml(_config(policy, interval, seed, changes)))
    long = tuple(layers) if policy == "slow" else tuple(long)
    records = [
        _record(number, layers, long, bits, accuracy) for number in range(1, ROUNDS + 1)
    ]
    if policy == "slow":
        records = [record for record in records if record["due"]]
    kept = records if finished else records[: len(records) // 2]
    (path / "rounds.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in kept)
    )
    if finished:
        summary = _summary(layers, long, records, interval, bits, accuracy, seed)
        (path / "summary.json").write_text(json.dumps({**summary, **(more or {})}))
    return load_run(path)


def _config(policy, interval, seed, changes):
    kind = "fedlama" if policy in ("fedlama", "factor one") else "fedavg"
    tables = {
        "data": {"name": "digits"},
        "participation": {"active": 2, "window": 24},
        "policy": {
            "kind": kind,
            "base_interval": interval,
            "increase_factor": FACTOR if policy == "fedlama" else 1,
        },
        "train": {"iterations": ROUNDS * BASE_INTERVAL},
    }
    merged = {
        name: {**tables.get(name, {}), **changes.get(name, {})}
        for name in {**tables, **changes}
    }
    return {
        "seed": seed,
        **merged,
        "versions": {"fedlama": "0.0", **changes.get("versions", {})},
    }


def _record(number, layers, long, bits, accuracy):
    whole = number % FACTOR == 0
    due = [name for name in layers if whole or name not in long]
    received = sum(2 * 4 * layers[name] for name in due)
    return {
        "round": number,
        "step": BASE_INTERVAL * number,
        "cycle": (number - 1) // FACTOR + 1,
        "due": due,
        "intervals": [
            BASE_INTERVAL * FACTOR if name in long else BASE_INTERVAL for name in layers
        ],
        "discrepancy": [
            (place + 1) / size if name in due else None
            for place, (name, size) in enumerate(layers.items())
        ],
        "loss": 1.0 / number,
        "test_loss": 1.0 / number if whole else None,
        "accuracy": None
        if not whole or accuracy is None
        else accuracy * number / ROUNDS,
        "uplink_bytes": received * bits // 32,
        "downlink_bytes": received,
        "cost": 1.0,
        "excluded": [],
    }


def _summary(layers, long, records, interval, bits, accuracy, seed):
    counts = {name: sum(name in record["due"] for record in records) for name in layers}
    full = ROUNDS * BASE_INTERVAL // interval * sum(layers.values())
    return {
        "accuracy": accuracy,
        "loss": records[-1]["test_loss"],
        "cost": sum(size * counts[name] for name, size in layers.items()) / full,
        "uplink_bytes": sum(record["uplink_bytes"] for record in records),
        "downlink_bytes": sum(record["downlink_bytes"] for record in records),
        "statistics_bytes": 0,
        "iterations": ROUNDS * BASE_INTERVAL,
        "seed": seed,
        "seconds": 1.0,
        "layers": [
            {
                "name": name,
                "size": size,
                "adaptive": name.endswith("weight"),
                "aggregations": counts[name],
                "interval": BASE_INTERVAL * FACTOR if name in long else BASE_INTERVAL,
                "uplink_bytes": 2 * 4 * size * counts[name] * bits // 32,
                "downlink_bytes": 2 * 4 * size * counts[name],
            }
            for name, size in layers.items()
        ],
    }
