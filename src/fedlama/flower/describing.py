"""A Flower run as a configuration: what its run directory says that it was."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from flwr import __version__ as flower_version

from fedlama.base import InputError
from fedlama.flower.options import Options
from fedlama.flower.queries import Member
from fedlama.run.choices import LOCAL_RULES
from fedlama.run.codecs import CodecSection
from fedlama.run.config import Config, parse_config
from fedlama.run.describe import policy_table
from fedlama.run.resolve import versions
from fedlama.run.tables import LocalSection, ServerSection

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
        local: How the clients train, as they say; they may say anything, or nothing.
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
    tables["policy"] = policy_table(policy)
    tables["server"] = ServerSection.table_of(options.server)
    tables["uplink"] = CodecSection.table_of(options.uplink)
    tables["downlink"] = CodecSection.table_of(options.downlink)
    if local:
        # What clients say of themselves may be no configuration: the run is then described without it.
        with suppress(InputError):
            return parse_config({**tables, "local": local}, "the strategy")
    described = parse_config(tables, "the strategy")
    # Its defaults are nobody's.
    return described.model_copy(update={"local": None})


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

    # Clients say the name of the class, which a configuration has another name for.
    for name, built in LOCAL_RULES.items():
        if options.get(LocalSection.chosen_by) == built.__name__:
            options[LocalSection.chosen_by] = name
    return options
