"""What is tried: a configuration, a number of workers, and when to kill."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    number: int
    tables: dict
    workers: int
    kills: tuple[int, ...]  # after how many more rounds each
    kills_a_worker: bool  # instead of the parent


def draw(number: int) -> Trial:
    """The trial of this number."""
    chance = random.Random(number)
    policy, cycle = _policy(chance)
    model = chance.choice(["mlp", "mlp", "mlp", "small_cnn", "small_cnn", "resnet20"])
    clients = chance.randint(2, 12)
    active = chance.choice([1.0, 0.5, chance.randint(1, clients), chance.randint(1, clients)])
    tables = {
        "seed": chance.randint(0, 1000),
        "data": {"name": "digits"},
        "model": {"name": model, "layers": chance.choice(["tensor", "tensor", "module"])},
        "partition": _partition(chance, clients),
        "participation": {"active": active, "window": cycle * chance.choice([1, 1, 2, 3])},
        "policy": policy,
        "local": {
            "learning_rate": chance.choice([0.02, 0.05]),
            "batch_size": chance.choice([3, 8, 16]),
            "momentum": chance.choice([0.0, 0.5, 0.9]),
            "weight_decay": chance.choice([0.0, 1e-3]),
        },
        "train": {
            "iterations": chance.randint(1, 12 if model == "resnet20" else 60),
            "weights": chance.choice(["uniform", "samples"]),
            "checkpoint_minutes": chance.choice([0.0, 0.0, 0.0, 0.0005, 5.0]),
            "execution": chance.choice(["auto", "auto", "one-by-one"]),
        },
        "output": {"tensorboard": False},
    }
    if chance.random() < 0.7:
        tables["faults"] = _faults(chance, _count(active, clients))
    kills = tuple(chance.randint(0, 8) for _ in range(chance.choice([0, 1, 2, 3])))
    return Trial(number, tables, chance.randint(1, 3), kills, chance.random() < 0.3)


def _policy(chance: random.Random) -> tuple[dict, int]:
    base, factor = chance.randint(1, 6), chance.randint(1, 4)
    if chance.random() < 0.15:
        return {"kind": "fedavg", "base_interval": base}, base
    rule = chance.choice(["crossing", "released", "printed", "accelerate"])
    if rule == "accelerate":
        base *= factor
    policy = {"base_interval": base, "increase_factor": factor, "rule": rule, "warmup_rounds": chance.choice([0, 0, 3])}
    return policy, base if rule == "accelerate" else base * factor


def _partition(chance: random.Random, clients: int) -> dict:
    if chance.random() < 0.3:
        return {"kind": "iid", "clients": clients}
    return {"kind": "dirichlet", "clients": clients, "alpha": chance.choice([0.3, 1.0]), "min_samples": 3}


def _count(active: float, clients: int) -> int:
    return max(1, int(active * clients + 0.5)) if isinstance(active, float) else active


def _faults(chance: random.Random, active: int) -> dict:
    rates = {name: chance.choice([0.0, 0.1, 0.3]) for name in ("fail_before", "fail_during", "straggle", "corrupt")}
    limit = {"norm_limit": chance.choice([0.5, 5.0, 1e6])} if chance.random() < 0.5 else {}
    few = {
        "min_clients": chance.randint(1, max(1, active // 3)),
        "on_too_few": chance.choice(["repeat", "repeat", "stop"]),
    }
    return {**rates, **limit, **few}
