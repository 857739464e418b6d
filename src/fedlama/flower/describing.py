"""A Flower run as a configuration: what its run directory says that it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from flwr import __version__ as flower_version

from fedlama.base import InputError
from fedlama.compress import Chain, Codec, ErrorFeedback
from fedlama.flower.options import Options
from fedlama.flower.queries import Member
from fedlama.run.choices import CODECS, POLICIES, SERVER_RULES
from fedlama.run.config import Config, parse_config
from fedlama.run.resolve import versions

DATA_NAME = "flower"  # the data stays with the clients: the server knows no name for it


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
        "versions": {
            **versions(),
            "flwr": flower_version,
            "policy": str(policy),
        },
    }
    tables["policy"] = _chosen("kind", POLICIES, policy, {"interval": "base_interval"})
    tables["server"] = _chosen("rule", SERVER_RULES, options.server, {})
    tables["uplink"] = _codec_table(options.uplink)
    tables["downlink"] = _codec_table(options.downlink)

    # Through JSON, which makes lists of tuples, as a file would have them.
    plain = json.loads(json.dumps(tables))
    try:
        return parse_config({**plain, "local": local}, "the strategy")
    except InputError:
        # What clients say of themselves is no configuration, and the run is described without it.
        return parse_config(plain, "the strategy")


def local_rules(members: Iterable[Member]) -> str:
    """How the clients train, as they say themselves.

    Arguments:
        members: The nodes that said who they are.
    """
    # The keys of a dictionary: each once, in the order in which they came.
    names: dict[str, None] = {}
    for member in members:
        names[member.local] = None
    return ", ".join(names)


def local_options(members: Iterable[Member]) -> dict[str, Any]:
    """The table of a configuration that says how the clients train; empty where they say nothing, or disagree.

    Arguments:
        members: The nodes that said who they are.
    """
    answers = {member.options for member in members}
    if len(answers) != 1:
        return {}
    try:
        options = json.loads(answers.pop())
    except (ValueError, RecursionError):
        return {}
    if not isinstance(options, dict):
        return {}
    return options


def _chosen(
    key: str, choices: Mapping[str, type[Any]], value: Any, names: Mapping[str, str]
) -> dict[str, Any]:
    """The table of a value: its name among the choices under `key`, and its options.

    Arguments:
        key: Of the name.
        choices: The classes that a configuration has a name for.
        value: One of one of these classes.
        names: What a configuration calls options that have another name there.
    """
    for name, kind in choices.items():
        if type(value) is not kind:
            continue
        table: dict[str, Any] = {key: name}
        for option in fields(value):
            given = getattr(value, option.name)
            if option.init and given is not None:
                option_name = names.get(option.name, option.name)
                table[option_name] = given
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
        names = [first["codec"], second["codec"]]
        return {**first, **second, "codec": names}
    return _chosen("codec", CODECS, codec, {})
