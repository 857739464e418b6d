"""A Flower run on disk: the same directory as a simulated one, which `fedlama report` draws and a new run resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from flwr import __version__ as flower_version
from torch import nn

from fedlama.base import InputError
from fedlama.compress import Chain, Codec, ErrorFeedback
from fedlama.core import Layout, PolicyState, RoundPlan
from fedlama.flower.options import Options
from fedlama.run.checkpoints import find_checkpoint
from fedlama.run.choices import CODECS, POLICIES, SERVER_RULES
from fedlama.run.config import Config, parse_config
from fedlama.run.directory import CHECKPOINTS, RunDirectory
from fedlama.run.files import write_atomically
from fedlama.run.resolve import versions
from fedlama.training.faults import Discarded, Exclusion
from fedlama.training.records import Record, Result
from fedlama.training.results import layer_summaries
from fedlama.training.values import Position

DATA_NAME = "flower"  # the data stays with the clients: the server knows no name for it
RUN_NAME = "flower.json"  # beside the checkpoints
MAX_RUN_NAME = 64  # characters


def config_of(
    options: Options,
    *,
    population: int,
    iterations: int,
    evaluate_every: int,
    local: Mapping[str, Any],
) -> Config:
    """What a run directory says of the run; options that a configuration has no name for are left out.

    Arguments:
        options: What the strategy was given.
        population: How many clients there are.
        iterations: How many global steps the run has.
        evaluate_every: After how many steps the model is evaluated.
        local: How the clients train, as they say; they may say anything.
    """
    policy = options.policy
    participation = options.participation
    tables: dict[str, Any] = {
        "seed": options.seed,
        "data": {"name": DATA_NAME},
        "model": {"name": DATA_NAME, "layers": options.layers},
        "partition": {"kind": "natural", "clients": population},
        "participation": {
            "active": participation.active,
            "window": participation.window_steps(policy),
        },
        "train": {
            "iterations": iterations,
            "evaluate_every": evaluate_every,
            "weights": options.weights,
        },
        "output": {"tensorboard": False},
        "versions": {**versions(), "flwr": flower_version, "policy": str(policy)},
    }
    tables["policy"] = _chosen("kind", POLICIES, policy, {"interval": "base_interval"})
    tables["server"] = _chosen("rule", SERVER_RULES, options.server, {})
    tables["uplink"] = _codec_table(options.uplink)
    tables["downlink"] = _codec_table(options.downlink)
    plain = json.loads(json.dumps(tables))
    try:
        return parse_config({**plain, "local": local}, "the strategy")
    except InputError:
        return parse_config(plain, "the strategy")


def _chosen(
    key: str, choices: Mapping[str, type[Any]], value: Any, names: Mapping[str, str]
) -> dict[str, Any]:
    for name, kind in choices.items():
        if type(value) is not kind:
            continue
        table: dict[str, Any] = {key: name}
        for option in fields(value):
            given = getattr(value, option.name)
            if option.init and given is not None:
                table[names.get(option.name, option.name)] = given
        return table
    raise InputError(
        f"{value!r} cannot be written into a run directory: leave save_to out"
    )


def _codec_table(codec: Codec | None) -> dict[str, Any]:
    """As [uplink] has it."""
    if codec is None:
        return {"codec": "none"}
    if isinstance(codec, ErrorFeedback):
        table = _codec_table(codec.codec)
        table["error_feedback"] = codec.lifetime
        if codec.profile is not None:
            table["profile"] = list(codec.profile)
        if codec.gain is not None:
            table["gain"] = codec.gain
        return table
    if isinstance(codec, Chain):
        first = _codec_table(codec.first)
        second = _codec_table(codec.second)
        return {**first, **second, "codec": [first["codec"], second["codec"]]}
    return _chosen("codec", CODECS, codec, {})


def record_of(
    *,
    started: Position,
    after: Position,
    plan: RoundPlan,
    loss: float,
    scores: Mapping[str, float],
    excluded: Sequence[Exclusion],
    layout: Layout,
    base_interval: int,
) -> Record:
    """The round as observers see it; attempts that came to nothing belong to it.

    Arguments:
        started: Where its last attempt began.
        after: Where the run stands after it.
        plan: The round.
        loss: The mean training loss of its clients.
        scores: What `evaluate_fn` said, by name.
        excluded: Who did not count in the last attempt.
        layout: The model's.
        base_interval: τ', the policy's.
    """
    discrepancy: list[float | None] = [None] * len(layout.layers)
    for layer in plan.due:
        discrepancy[layer] = after.state.discrepancy[layer]
    ledger = after.server.ledger
    before = started.server.ledger
    discarded = started.discarded or Discarded()
    return Record(
        round=after.state.round,
        step=after.step,
        cycle=started.state.cycle + 1,
        due=[layout.layers[layer].name for layer in plan.due],
        intervals=list(started.state.intervals),
        discrepancy=discrepancy,
        loss=loss,
        test_loss=scores.get("loss"),
        accuracy=scores.get("accuracy"),
        uplink_bytes=ledger.uplink_bytes - before.uplink_bytes + discarded.uplink_bytes,
        downlink_bytes=ledger.downlink_bytes
        - before.downlink_bytes
        + discarded.downlink_bytes,
        cost=ledger.relative_cost(after.step, base_interval),
        excluded=[*discarded.excluded, *excluded],
    )


def result_of(
    end: Position,
    records: list[Record],
    module: nn.Module,
    *,
    layout: Layout,
    options: Options,
    population: int,
    local: str,
    seconds: float,
) -> Result:
    """What came of a run that reached its last step.

    Arguments:
        end: Where it stands.
        records: One per round, of which the last has a score.
        module: The model with the global weights.
        layout: Its layers.
        options: What the strategy was given.
        population: How many clients there are.
        local: How they train, as they say.
        seconds: How long the run took.
    """
    last = records[-1]
    assert last.test_loss is not None, "the last round is always evaluated"
    ledger = end.server.ledger
    base_interval = options.policy.base_interval
    averages = -(-end.step // base_interval)
    clients = options.participation.count(population)
    of_fedavg = averages * clients * ledger.plain_message().total
    codec = "none"
    if options.uplink is not None:
        codec = str(options.uplink)
    return Result(
        accuracy=last.accuracy,
        loss=last.test_loss,
        cost=ledger.relative_cost(end.step, base_interval),
        uplink_bytes=ledger.uplink_bytes,
        downlink_bytes=ledger.downlink_bytes,
        statistics_bytes=ledger.statistics_uplink,
        iterations=end.step,
        seed=options.seed,
        seconds=seconds,
        uplink_share=ledger.uplink_bytes / of_fedavg,
        codec=codec,
        server=str(options.server),
        local=local,
        layers=layer_summaries(end, layout),
        records=records,
        model=module,
    )


class Recording:
    """Writes a run directory, or nothing at all where no folder is named.

    Arguments:
        folder: The run directory.
        config: What it says of the run.
        run_name: Marks what clients keep of the run; one that is resumed has its own already.
        resume: Whether it goes on with the run that is there.
    """

    def __init__(
        self, folder: Path | None, config: Config | None, *, run_name: str, resume: bool
    ) -> None:
        self.directory: RunDirectory | None = None
        self.earlier: list[Record] = []
        self.checkpoint: bytes = b""
        self.run_name = run_name
        if folder is None or config is None:
            return
        self.directory = RunDirectory(folder, config, resume=resume)
        if resume:
            self._resume(self.directory, config)

    def _resume(self, directory: RunDirectory, config: Config) -> None:
        directory.check_same_config()
        tables = config.model_dump(exclude_none=True)
        found = find_checkpoint(
            directory.path / CHECKPOINTS, tables, directory.recorded()
        )
        if found is None:
            raise InputError(f"{directory.path} has no checkpoint to resume from")
        self.checkpoint = found.content
        self.earlier = directory.continue_after(found.round)
        self.run_name = _read_run_name(directory.path, self.run_name)

    def record(self, record: Record) -> None:
        """Append one round.

        Arguments:
            record: It.
        """
        if self.directory is not None:
            self.directory.record(record)

    def save(self, content: bytes, state: PolicyState) -> None:
        """Keep a checkpoint.

        Arguments:
            content: It.
            state: Where the policy stands.
        """
        if self.directory is None:
            return
        self.directory.save_checkpoint(content, state)
        about = json.dumps({"run": self.run_name})
        path = self.directory.path / CHECKPOINTS / RUN_NAME
        write_atomically(path, about + "\n")

    def finish(self, result: Result) -> None:
        """Write the model and the summary.

        Arguments:
            result: What came of the run.
        """
        if self.directory is not None:
            self.directory.finish(result)


def _read_run_name(folder: Path, otherwise: str) -> str:
    """The name under which clients kept what outlives a window; without it they begin anew."""
    try:
        about = json.loads((folder / CHECKPOINTS / RUN_NAME).read_text())
        name = str(about["run"])
    except (OSError, ValueError, LookupError, TypeError):
        return otherwise
    # It becomes a part of file names on the clients.
    if not name.isalnum() or len(name) > MAX_RUN_NAME:
        return otherwise
    return name
