"""What a client keeps between two rounds: in Flower's context, or in a file of a folder that the node names.

Flower's state survives the rounds of one run on one SuperNode, not a restart. It is pushed after the reply, and states
of 200 MB were lost without a word, so a larger model needs a folder: `state-folder` in the node's configuration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedlama.base import InputError

STATE = "fedlama.state"
FOLDER = "state-folder"  # in the node's configuration
MAX_IN_CONTEXT = 64 << 20  # bytes
ROW_TYPE = "fedlama.row"


@dataclass
class ClientState:
    """A client's rows by name, and the tag of the round after which it had them. An empty tag: it has none."""

    tag: str = ""
    run: str = ""
    rows: dict[str, Tensor] = field(default_factory=dict[str, Tensor])


def load_state(context: Context, run: str, client: int, width: int) -> ClientState:
    """What this client kept in this run; an empty state where nothing usable is found.

    Arguments:
        context: Flower's.
        run: The run's name.
        client: The client's number.
        width: How many numbers a row must have.
    """
    folder = _folder(context)
    if folder is None:
        state = _from_context(context)
    else:
        state = _from_file(_path(folder, run, client))
    if state.run != run or any(row.shape != (width,) for row in state.rows.values()):
        return ClientState()
    return state


def store_state(context: Context, client: int, state: ClientState) -> None:
    """Keep this state in place of the one before."""
    folder = _folder(context)
    if folder is not None:
        _to_file(_path(folder, state.run, client), state)
        return
    size = sum(row.numel() * row.element_size() for row in state.rows.values())
    if size > MAX_IN_CONTEXT:
        raise InputError(
            f"the client's state is {size >> 20} MB, and Flower loses large ones: name a folder for it, "
            f"with --node-config '{FOLDER}=\"/var/lib/fedlama\"' at flower-supernode"
        )
    # An exception on the way leaves a state without a tag, which counts as none.
    forget_state(context, client, state.run)
    arrays: dict[str, Array] = {}
    for name, row in state.rows.items():
        content = row.numpy().tobytes()
        arrays[name] = Array(dtype="uint8", shape=(len(content),), stype=ROW_TYPE, data=content)
    context.state[STATE] = ArrayRecord(arrays)
    context.state[f"{STATE}.tag"] = ConfigRecord({"tag": state.tag, "run": state.run})


def forget_state(context: Context, client: int, run: str) -> None:
    """Free what was kept: a SuperNode never does that itself."""
    for name in (f"{STATE}.tag", STATE):
        if name in context.state:
            del context.state[name]
    folder = _folder(context)
    if folder is not None:
        _path(folder, run, client).unlink(missing_ok=True)


def _folder(context: Context) -> Path | None:
    named = context.node_config.get(FOLDER)
    if not named:
        return None
    return Path(str(named))


def _path(folder: Path, run: str, client: int) -> Path:
    return folder / f"fedlama-{run}-{client}.safetensors"


def _from_context(context: Context) -> ClientState:
    tag = context.state.config_records.get(f"{STATE}.tag")
    arrays = context.state.array_records.get(STATE)
    if tag is None or arrays is None:
        return ClientState()
    rows: dict[str, Tensor] = {}
    for name, array in arrays.items():
        rows[name] = torch.frombuffer(bytearray(array.data), dtype=torch.float32)
    return ClientState(tag=str(tag["tag"]), run=str(tag["run"]), rows=rows)


def _from_file(path: Path) -> ClientState:
    try:
        with safe_open(path, framework="pt") as file:
            about: Mapping[str, str] = file.metadata() or {}
            rows = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a mapping
        said = json.loads(about[STATE])
        return ClientState(tag=str(said["tag"]), run=str(said["run"]), rows=rows)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        return ClientState()


def _to_file(path: Path, state: ClientState) -> None:
    """Whole or not at all: to another name first, synced, then renamed."""
    about = {STATE: json.dumps({"tag": state.tag, "run": state.run})}
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(save(state.rows, metadata=about))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
