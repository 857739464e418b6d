"""What must hold of any finished run, from what it wrote."""

import json
import tomllib
from pathlib import Path

from fedlama import Participation
from fedlama.server.exclusions import FAILED_BEFORE, FAILED_DURING

PLAIN_RULES = ("sgd", "fedprox")  # which send the model and nothing else
COMPARED = ("rounds.jsonl", "config.toml", "checkpoint/model.safetensors")


class BrokenError(AssertionError):
    """Something that must hold does not."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenError(what)


def contents(folder: Path) -> dict[str, object]:
    """All of a run that does not vary from run to run."""
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"]
    return {
        "summary": summary,
        **{name: (folder / name).read_bytes() for name in COMPARED},
    }


def check_run(folder: Path) -> None:
    config = tomllib.loads((folder / "config.toml").read_text())
    records = [
        json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()
    ]
    summary = json.loads((folder / "summary.json").read_text())
    check_ledger(records, summary)
    if config["policy"].get("kind", "fedlama") not in ("fedlama", "fedavg"):
        return
    check_cycles(config, records, summary)
    check_bounds(config, summary)
    coded = any(
        config.get(name, {}).get("codec", "none") != "none"
        for name in ("uplink", "downlink")
    )
    if not coded and config["local"].get("rule", "sgd") in PLAIN_RULES:
        check_bytes(config, records, summary)


def check_ledger(records: list[dict], summary: dict) -> None:
    for name in ("uplink_bytes", "downlink_bytes"):
        require(
            sum(record[name] for record in records) == summary[name],
            f"{name} is not the sum over records",
        )
    in_layers = sum(layer["uplink_bytes"] for layer in summary["layers"])
    require(
        in_layers + summary["statistics_bytes"] == summary["uplink_bytes"],
        "the layers' uplink does not add up",
    )
    for layer in summary["layers"]:
        averaged = sum(layer["name"] in record["due"] for record in records)
        require(
            averaged == layer["aggregations"],
            f"{layer['name']} was due {averaged} times, not as counted",
        )


def check_cycles(config: dict, records: list[dict], summary: dict) -> None:
    """Every layer is due at every cycle's end, and rounds follow each other without a gap."""
    length, everything = (
        cycle_steps(config["policy"]),
        [layer["name"] for layer in summary["layers"]],
    )
    require(
        [record["round"] for record in records] == list(range(1, len(records) + 1)),
        "rounds are not consecutive",
    )
    ends = [
        record
        for record in records
        if record["step"] % length == 0 or record is records[-1]
    ]
    iterations = config["train"]["iterations"]
    expected = [*range(length, iterations, length), iterations]
    require(
        [record["step"] for record in ends] == expected,
        "cycles do not end where they should",
    )
    for record in ends:
        require(
            record["due"] == everything,
            f"round {record['round']} ends a cycle, but not all layers were due",
        )


def check_bounds(config: dict, summary: dict) -> None:
    """C lies between all adaptive layers long and all of them short, and `cost` is C over its definition."""
    policy, iterations, length = (
        config["policy"],
        config["train"]["iterations"],
        cycle_steps(config["policy"]),
    )
    base, factor = policy["base_interval"], policy.get("increase_factor", 1)
    shortest = base // factor if policy.get("rule") == "accelerate" else base
    cycles = [min(length, iterations - start) for start in range(0, iterations, length)]
    fixed, most = (
        sum(-(-steps // interval) for steps in cycles) for interval in (base, shortest)
    )
    for layer in summary["layers"]:
        low, high = (len(cycles), most) if layer["adaptive"] else (fixed, fixed)
        kappa = layer["aggregations"]
        require(
            low <= kappa <= high,
            f"{layer['name']} was averaged {kappa} times, outside {low} to {high}",
        )
    size = sum(layer["size"] for layer in summary["layers"])
    spent = sum(layer["size"] * layer["aggregations"] for layer in summary["layers"])
    require(
        summary["cost"] == spent / (-(-iterations // base) * size),
        "cost is not C over its definition",
    )


def check_bytes(config: dict, records: list[dict], summary: dict) -> None:
    """Bytes follow from who was there: recomputed from the names of those left out. Coded ones depend on numbers."""
    codec = {
        table: config.get(table, {}).get("codec", "none")
        for table in ("uplink", "downlink")
    }
    if codec["uplink"] != "none":
        return
    # c goes down with the model
    per_number = 8 if config["local"]["rule"] == "scaffold" else 4
    sizes = {layer["name"]: layer["size"] for layer in summary["layers"]}
    trips = list(_trips(config, records))
    uploads = sum(up for _, up, _, _ in trips)
    statistics = summary["statistics_bytes"] // uploads if uploads else 0
    require(
        statistics * uploads == summary["statistics_bytes"],
        "the statistics' bytes are not so much an upload",
    )
    sums = {record["round"]: [0, 0] for record in records}
    for number, up, down, sent in trips:
        record = records[number - 1]
        sums[number][0] += up * (
            4 * sum(sizes[name] for name in record["due"]) + statistics
        )
        sums[number][1] += down * (
            per_number * sum(sizes[name] for name in (sizes if sent is None else sent))
            + statistics
        )
    for record in records:
        told = [record["uplink_bytes"], record["downlink_bytes"]]
        if codec["downlink"] != "none":
            sums[record["round"]][1] = record["downlink_bytes"]
        require(
            told == sums[record["round"]],
            f"bytes of round {record['round']} are {told}, not {sums}",
        )


def _trips(config: dict, records: list[dict]):
    """Every attempt at a round: (round, uploads, downloads, what was sent down; None for everything)."""
    count = Participation.from_active(config["participation"]["active"]).count(
        config["partition"]["clients"]
    )
    length, window = cycle_steps(config["policy"]), config["participation"]["window"]
    gone, attempt, before = set(), 1, None
    for record in records:
        start = before["step"] if before else 0
        attempt = 1 if start % window == 0 else attempt
        sent = before["due"] if before else None
        if start % length == 0:
            gone, sent = set(), None
        while True:
            named = [one for one in record["excluded"] if one["attempt"] == attempt]
            reasons = [one["reason"] for one in named]
            present = count - len(gone) - reasons.count(FAILED_BEFORE)
            yield record["round"], present - reasons.count(FAILED_DURING), present, sent
            gone |= {one["client"] for one in named}
            if len(gone) < count:
                break
            # Nobody was averaged: new clients, and all over again
            gone, sent, attempt = set(), None, attempt + 1
        before = record


def cycle_steps(policy: dict) -> int:
    if policy.get("rule") == "accelerate":
        return policy["base_interval"]
    return policy["base_interval"] * policy.get("increase_factor", 1)
