"""A Flower run on disk: the same directory as a simulated one, which `fedlama report` draws and a new run resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedlama.base import InputError
from fedlama.compress import Chain, Codec, ErrorFeedback
from fedlama.core import Policy, PolicyState
from fedlama.run.checkpoints import find_checkpoint
from fedlama.run.choices import CODECS, POLICIES, SERVER_RULES
from fedlama.run.config import Config, parse_config
from fedlama.run.directory import CHECKPOINTS, RunDirectory
from fedlama.run.resolve import versions
from fedlama.server import ServerRule
from fedlama.training.participation import Participation
from fedlama.training.records import Record, Result

DATA_NAME = "flower"  # the data stays with the clients: the server knows no name for it


def config_of(
    *,
    policy: Policy,
    server: ServerRule,
    uplink: Codec | None,
    downlink: Codec | None,
    participation: Participation,
    population: int,
    iterations: int,
    evaluate_every: int,
    weights: str,
    layers: str,
    seed: int,
) -> Config:
    """What a run directory says of the run; options that a configuration has no name for are left out."""
    tables: dict[str, Any] = {
        "seed": seed,
        "data": {"name": DATA_NAME},
        "model": {"name": DATA_NAME, "layers": layers},
        "partition": {"kind": "natural", "clients": population},
        "participation": {"active": participation.active, "window": participation.window_steps(policy)},
        "train": {"iterations": iterations, "evaluate_every": evaluate_every, "weights": weights},
        "output": {"tensorboard": False},
        "versions": {**versions(), "policy": str(policy)},
    }
    tables["policy"] = _chosen("kind", POLICIES, policy, {"interval": "base_interval"})
    tables["server"] = _chosen("rule", SERVER_RULES, server, {})
    tables["uplink"] = _codec_table(uplink)
    tables["downlink"] = _codec_table(downlink)
    return parse_config(json.loads(json.dumps(tables)), "the strategy")


def _chosen(key: str, choices: Mapping[str, type[Any]], value: Any, names: Mapping[str, str]) -> dict[str, Any]:
    for name, kind in choices.items():
        if type(value) is kind:
            table: dict[str, Any] = {key: name}
            for option in fields(value):
                given = getattr(value, option.name)
                if option.init and given is not None:
                    table[names.get(option.name, option.name)] = given
            return table
    raise InputError(f"{value!r} cannot be written into a run directory: leave save_to out")


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


class Recording:
    """Writes a run directory, or nothing at all where no folder is named.

    Arguments:
        folder: The run directory.
        config: What it says of the run.
        resume: Whether it goes on with the run that is there.
    """

    def __init__(self, folder: Path | None, config: Config | None, *, resume: bool) -> None:
        self.directory: RunDirectory | None = None
        self.earlier: list[Record] = []
        self.checkpoint: bytes = b""
        if folder is None or config is None:
            return
        self.directory = RunDirectory(folder, config, resume=resume)
        if resume:
            self._resume(self.directory, config)

    def _resume(self, directory: RunDirectory, config: Config) -> None:
        directory.check_same_config()
        tables = config.model_dump(exclude_none=True)
        found = find_checkpoint(directory.path / CHECKPOINTS, tables, directory.recorded())
        if found is None:
            raise InputError(f"{directory.path} has no checkpoint to resume from")
        self.checkpoint = found.content
        self.earlier = directory.continue_after(found.round)

    def record(self, record: Record) -> None:
        """Append one round."""
        if self.directory is not None:
            self.directory.record(record)

    def save(self, content: bytes, state: PolicyState) -> None:
        """Keep a checkpoint."""
        if self.directory is not None:
            self.directory.save_checkpoint(content, state)

    def finish(self, result: Result) -> None:
        """Write the model and the summary."""
        if self.directory is not None:
            self.directory.finish(result)
