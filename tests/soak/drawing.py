"""What is tried: a configuration, a number of workers, and when to kill."""

import random
from dataclasses import dataclass
from typing import Literal

from fedlama.compress import ErrorFeedback
from fedlama.compress.chain import Projection
from fedlama.core import shortest_interval
from fedlama.run.choices import CODECS, POLICIES
from fedlama.run.config import parse_config

BY_INTERVALS = ("fedlama", "fedavg")
# Of what has no default, or one that is too large for a run of a few steps
OPTIONS = {
    "budget": {"base_interval": 2, "cycle": 8, "share": 0.5},
    "fedluar": {"base_interval": 3, "recycled": 1},
    "fedpart": {"base_interval": 3},
    "fixed": {"base_interval": 2, "intervals": {"*weight": 4}},
}
PROJECTIONS = [name for name, kind in CODECS.items() if issubclass(kind, Projection)]


@dataclass(frozen=True)
class Interruption:
    """Of a command: SIGKILL for itself or for a worker of it, SIGTERM, or a disk without room."""

    kind: Literal["kill", "kill a worker", "stop", "full disk"]
    rounds: int  # after how many more


@dataclass(frozen=True)
class Trial:
    number: int
    tables: dict
    workers: int
    interruptions: tuple[Interruption, ...]
    forges: bool  # the newest checkpoint, before the run goes on for the last time

    @property
    def fills_a_disk(self) -> bool:
        return any(
            interruption.kind == "full disk" for interruption in self.interruptions
        )


def draw(number: int) -> Trial:
    """The trial of this number."""
    chance = random.Random(number)
    policy, cycle = _policy(chance)
    model = chance.choice(["mlp", "mlp", "mlp", "small_cnn", "small_cnn", "resnet20"])
    clients = chance.randint(2, 12)
    active = chance.choice(
        [1.0, 0.5, chance.randint(1, clients), chance.randint(1, clients)]
    )
    tables = {
        "seed": chance.randint(0, 1000),
        "data": {"name": "digits"},
        "model": {
            "name": model,
            "layers": chance.choice(["tensor", "tensor", "module"]),
        },
        "partition": _partition(chance, clients),
        "participation": {
            "active": active,
            "window": cycle * chance.choice([1, 1, 2, 3]),
        },
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
    # From here on draws of their own: the trials of before stay what they were in all else.
    tables |= _rules(random.Random(f"rules {number}"), tables["local"])
    tables["train"] |= _evaluated(random.Random(f"evaluated {number}"))
    if chance.random() < 0.7:
        tables["faults"] = _faults(chance, _count(active, clients))
    kills = [chance.randint(0, 8) for _ in range(chance.choice([0, 1, 2, 3]))]
    workers = chance.randint(1, 3)
    kind = "kill a worker" if chance.random() < 0.3 else "kill"
    _choose(random.Random(f"choices {number}"), tables)
    _share_out(random.Random(f"profile {number}"), tables)
    more = random.Random(f"interruptions {number}")
    if more.random() < 0.25:
        kind = "stop"
    forges = more.random() < 0.25
    interruptions = [Interruption(kind, rounds) for rounds in kills]
    _fill_disks(random.Random(f"full disks {number}"), interruptions)
    return Trial(number, tables, workers, tuple(interruptions), forges)


def _fill_disks(chance: random.Random, interruptions: list[Interruption]) -> None:
    """Let the disk fill up now and then, before, between or after the other interruptions."""
    if chance.random() < 0.35:
        for _ in range(chance.choice([1, 1, 2])):
            place = chance.randint(0, len(interruptions))
            interruptions.insert(
                place, Interruption("full disk", chance.choice([0, 1, 2, 3, 5]))
            )


def _choose(chance: random.Random, tables: dict) -> None:
    """Another policy that can be chosen by name."""
    kind = chance.choice(list(POLICIES))
    if kind not in BY_INTERVALS and chance.random() < 0.6:
        tables["policy"] = {"kind": kind, **OPTIONS.get(kind, {})}
        cycle = (
            parse_config(tables | {"participation": {}}).policy.build().longest_cycle
        )
        tables["participation"]["window"] = cycle * chance.choice([1, 2])


def _policy(chance: random.Random) -> tuple[dict, int]:
    base, factor = chance.randint(1, 6), chance.randint(1, 4)
    if chance.random() < 0.15:
        return {"kind": "fedavg", "base_interval": base}, base
    rule = chance.choice(["crossing", "released", "printed", "accelerate"])
    if rule == "accelerate":
        base *= factor
    policy = {
        "base_interval": base,
        "increase_factor": factor,
        "rule": rule,
        "warmup_rounds": chance.choice([0, 0, 3]),
    }
    return policy, base if rule == "accelerate" else base * factor


def _rules(chance: random.Random, sgd: dict) -> dict:
    """Any local rule with any server rule and any two codecs."""
    local = dict(sgd)
    local["rule"] = chance.choice(
        ["sgd", "sgd", "fedprox", "scaffold", "fednova", "feddyn"]
    )
    local |= {
        "fedprox": {"mu": 0.1},
        "scaffold": {"momentum": 0.0},
        "feddyn": {"alpha": 0.5},
    }.get(local["rule"], {})
    if local["rule"] != "scaffold" and chance.random() < 0.4:
        local["steps"] = chance.choice([1, 3, "0.5 epochs", [1, 5]])
    server = chance.choice(
        [
            {"rule": "mean"},
            {
                "rule": "momentum",
                "beta": 0.6,
                "rate": 0.5,
                "nesterov": chance.random() < 0.5,
            },
            {"rule": "adam", "rate": 0.01},
            {"rule": "yogi", "rate": 0.01},
        ]
    )
    return {
        "local": local,
        "server": server,
        "uplink": _codec(chance, clients=True),
        "downlink": _codec(chance),
    }


def _codec(chance: random.Random, clients: bool = False) -> dict:
    """None, any codec that can be chosen by name, or any chain of two or three."""
    names = chance.choice([[], [], *([name] for name in CODECS), *_chains()])
    feedback = chance.choice(["none", "window", "run"] if clients else ["none", "run"])
    if not names:
        return {}
    options = {
        name: value
        for codec in names
        for name, value in _codec_options(codec, chance).items()
    }
    if feedback == "none" and names[0] in PROJECTIONS:
        feedback = "run"
    return {
        "codec": names if len(names) > 1 else names[0],
        **options,
        "error_feedback": feedback,
    }


def _chains() -> list[list[str]]:
    lasts = [name for name in CODECS if name not in PROJECTIONS]
    pairs = [[first, last] for first in PROJECTIONS for last in lasts]
    return [*pairs, ["lowrank", "topk"], *(["lowrank", "topk", last] for last in lasts)]


def _codec_options(name: str, chance: random.Random) -> dict:
    """Small ones; a codec that nobody thought of here has to do with its defaults."""
    options = {
        "cast": {"dtype": chance.choice(["float16", "bfloat16", "float32"])},
        "quantize": {"bits": chance.randint(2, 8)},
        "rotate": {
            "bits": chance.choice([0.64, 1.6, 4.0]),
            "allocation": chance.choice(["uniform", "water"]),
        },
        "fit": {"share": chance.choice([0.01, 0.2])},
        "topk": {"share": 0.2},
        "lowrank": {"rank": 2},
    }
    return options.get(name, {})


def _share_out(chance: random.Random, tables: dict) -> None:
    """A profile over the rounds of a window, where the uplink can have one."""
    drawn = parse_config(tables)
    uplink = drawn.uplink.build()
    if (
        not isinstance(uplink, ErrorFeedback)
        or uplink.lifetime != "window"
        or uplink.rate is None
    ):
        return
    policy = drawn.policy.build()
    rounds = tables["participation"]["window"] // shortest_interval(policy)
    if rounds > 1 and chance.random() < 0.7:
        parts = [chance.choice([0, 1, 1, 2, 3]) for _ in range(rounds - 1)] + [3]
        tables["uplink"]["profile"] = [part / sum(parts) for part in parts]


def _evaluated(chance: random.Random) -> dict:
    if chance.random() < 0.3:
        return {"evaluate": "ema", "average_steps": chance.choice([1, 20])}
    return {}


def _partition(chance: random.Random, clients: int) -> dict:
    if chance.random() < 0.3:
        return {"kind": "iid", "clients": clients}
    return {
        "kind": "dirichlet",
        "clients": clients,
        "alpha": chance.choice([0.3, 1.0]),
        "min_samples": 3,
    }


def _count(active: float, clients: int) -> int:
    return max(1, int(active * clients + 0.5)) if isinstance(active, float) else active


def _faults(chance: random.Random, active: int) -> dict:
    rates = {
        name: chance.choice([0.0, 0.1, 0.3])
        for name in ("fail_before", "fail_during", "straggle", "corrupt")
    }
    limit = (
        {"norm_limit": chance.choice([0.5, 5.0, 1e6])} if chance.random() < 0.5 else {}
    )
    few = {
        "min_clients": chance.randint(1, max(1, active // 3)),
        "on_too_few": chance.choice(["repeat", "repeat", "stop"]),
    }
    return {**rates, **limit, **few}
