"""What a client keeps between two rounds: in Flower's context, or in a file of a folder that the node names.

Flower's state survives the rounds of one run on one SuperNode, not a restart; Flower never frees it. It is pushed after
the reply, and states of 200 MB were lost without a word, so a larger model needs a folder: `state-folder` in the node's
configuration.

There are two parts: all that the next round of a window needs, and what outlives the window. The second changes at a
window's end only, so that a client that was excluded comes back with what it had before. Of files, the one before is
kept, too: a server that was killed may go on from the window before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fedlama.base import InputError
from fedlama.flower.tasks import Keep
from fedlama.rows import Lifetime

STATE = "fedlama.state"
FOLDER = "state-folder"  # in the node's configuration
MAX_IN_CONTEXT = 64 << 20  # bytes
ROW_TYPE = "fedlama.row"


@dataclass
class ClientState:
    """A client's rows by name, and the tag of the round after which it had them. An empty tag: it has none."""

    tag: str = ""
    run: str = ""
    window: int = -1
    rows: dict[str, Tensor] = field(default_factory=dict[str, Tensor])


def load_state(context: Context, run: str, client: int, width: int) -> ClientState:
    """What this client had after its last round in this run; an empty state where nothing usable is found.

    Arguments:
        context: Flower's.
        run: The run's name.
        client: The client's number.
        width: How many numbers a row must have.
    """
    folder = _folder(context)
    if folder is None:
        state = _from_context(context, "window")
    else:
        path = _path(folder, run, client, "window")
        state = _from_file(path)
    return _checked(state, run, width)


def load_outliving(
    context: Context, run: str, client: int, width: int, *, window: int
) -> ClientState:
    """What outlived the client's last window before this one; an empty state where nothing usable is found.

    Arguments:
        context: Flower's.
        run: The run's name.
        client: The client's number.
        width: How many numbers a row must have.
        window: The number of the window that the client enters.
    """
    folder = _folder(context)
    if folder is None:
        candidates = [_from_context(context, "run")]
    else:
        path = _path(folder, run, client, "run")
        latest = _from_file(path)
        one_before = _from_file(_before(path))
        candidates = [latest, one_before]

    for state in candidates:
        # A file that is missing or torn, because the node was killed while it wrote, is of no run.
        if state.run != run:
            continue
        # The latest may be of a window that the server, killed and started again, plays a second time.
        if state.window < window:
            return _checked(state, run, width)
    return ClientState()


def store_state(
    context: Context, client: int, state: ClientState, *, part: Lifetime = "window"
) -> None:
    """Keep this state in place of the one before.

    Arguments:
        context: Flower's.
        client: The client's number.
        state: What to keep.
        part: What the next round needs, or what outlives a window.
    """
    folder = _folder(context)
    if folder is not None:
        path = _path(folder, state.run, client, part)
        _to_file(path, state, keeps_the_one_before=part == "run")
        return

    check_size(context, state.rows)
    # An exception on the way leaves a state without a tag, which counts as none.
    forget_state(context, client, state.run, part=part)
    arrays: dict[str, Array] = {}
    for name, row in state.rows.items():
        content = row.numpy().tobytes()
        arrays[name] = Array(
            dtype="uint8",
            shape=(len(content),),
            stype=ROW_TYPE,
            data=content,
        )
    about = _about(state)
    context.state[_record(part)] = ArrayRecord(arrays)
    context.state[_tag_record(part)] = ConfigRecord(about)


def check_size(context: Context, rows: Mapping[str, Tensor]) -> None:
    """Refuse rows that are too many for Flower's context, where no folder is named.

    Arguments:
        context: Flower's.
        rows: What is to be kept, by name.
    """
    size = _bytes_of(rows)
    if _folder(context) is None and size > MAX_IN_CONTEXT:
        raise InputError(
            f"the client's state is {size >> 20} MB, and Flower loses large ones: name a folder for it, "
            f"with --node-config '{FOLDER}=\"/var/lib/fedlama\"' at flower-supernode"
        )


def forget_state(
    context: Context, client: int, run: str, *, part: Lifetime = "window"
) -> None:
    """Free what was kept: a SuperNode never does that itself.

    Arguments:
        context: Flower's.
        client: The client's number.
        run: The run's name.
        part: What the next round needs, or what outlives a window.
    """
    for name in (_tag_record(part), _record(part)):
        if name in context.state:
            del context.state[name]

    folder = _folder(context)
    if folder is None:
        return
    path = _path(folder, run, client, part)
    for file in (path, _before(path), _partial(path)):
        file.unlink(missing_ok=True)


def forget_run(context: Context, client: int, run: str, *, keep: Keep) -> None:
    """Free what a run that has ended left here.

    Arguments:
        context: Flower's.
        client: The client's number.
        run: The run's name.
        keep: "run" for what outlives a window, where the run may be resumed, or "nothing".
    """
    parts: list[Lifetime] = ["window"]
    if keep == "nothing":
        parts.append("run")
    for part in parts:
        in_context = _from_context(context, part)
        # The server does not wait long for this: another run of the same app may have begun.
        if in_context.run in ("", run):
            forget_state(context, client, run, part=part)


def _folder(context: Context) -> Path | None:
    named = context.node_config.get(FOLDER)
    if not named:
        return None
    return Path(str(named))


def _path(folder: Path, run: str, client: int, part: Lifetime) -> Path:
    return folder / f"fedlama-{run}-{client}.{part}.safetensors"


def _before(path: Path) -> Path:
    return path.with_suffix(".before")


def _partial(path: Path) -> Path:
    return path.with_suffix(".partial")


def _bytes_of(rows: Mapping[str, Tensor]) -> int:
    size = 0
    for row in rows.values():
        size += row.numel() * row.element_size()
    return size


def _checked(state: ClientState, run: str, width: int) -> ClientState:
    """The state, or an empty one if it is of another run or another model."""
    if state.run != run:
        return ClientState()
    for row in state.rows.values():
        if row.shape != (width,):
            return ClientState()
    return state


def _record(part: Lifetime) -> str:
    return f"{STATE}.{part}"


def _tag_record(part: Lifetime) -> str:
    return f"{STATE}.{part}.tag"


def _about(state: ClientState) -> dict[str, Any]:
    return {
        "tag": state.tag,
        "run": state.run,
        "window": state.window,
    }


def _state(about: Mapping[str, Any], rows: dict[str, Tensor]) -> ClientState:
    return ClientState(
        tag=str(about["tag"]),
        run=str(about["run"]),
        window=int(about["window"]),
        rows=rows,
    )


def _from_context(context: Context, part: Lifetime) -> ClientState:
    kept = context.state
    about = kept.config_records.get(_tag_record(part))
    arrays = kept.array_records.get(_record(part))
    if about is None or arrays is None:
        return ClientState()

    rows: dict[str, Tensor] = {}
    for name, array in arrays.items():
        # A copy that may be written to: rows are changed in place.
        content = bytearray(array.data)
        rows[name] = torch.frombuffer(content, dtype=torch.float32)
    return _state(about, rows)


def _from_file(path: Path) -> ClientState:
    rows: dict[str, Tensor] = {}
    try:
        with safe_open(path, framework="pt") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118 - it is not a mapping
                rows[name] = file.get_tensor(name)
        about = json.loads(metadata[STATE])
        return _state(about, rows)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError):
        # A file that is not there, or not whole, is as good as none: the server then sends the whole model.
        return ClientState()


def _to_file(path: Path, state: ClientState, *, keeps_the_one_before: bool) -> None:
    """Whole or not at all: to another name first, synced, then renamed."""
    about = json.dumps(_about(state))
    metadata = {STATE: about}
    partial = _partial(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(save(state.rows, metadata=metadata))
            file.flush()
            os.fsync(file.fileno())
        # Only now: a disk that is full must leave the old file where it is.
        if keeps_the_one_before and _is_earlier(path, state):
            path.replace(_before(path))
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _is_earlier(path: Path, state: ClientState) -> bool:
    """Whether this file is of an earlier window; a torn one, or one of the same window, replaces no file before it."""
    old = _from_file(path)
    return old.run == state.run and old.window < state.window
