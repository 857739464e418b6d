"""Checkpoints of a Flower run: at a window's end clients keep nothing that the next round needs.

What outlives a window on clients stays with them, in files that the nodes name, under the run's name.
"""

from __future__ import annotations

import torch

from fedlama.core import Layout
from fedlama.server import Server, ServerState
from fedlama.training.checkpoint import Checkpoint, Shapes
from fedlama.training.position import Position


def checkpoint_of(position: Position) -> bytes:
    """All that a new run needs to go on from here, as the content of a file.

    Arguments:
        position: Where the run stands at a window's end, or where a round waits for new clients.
    """
    server_state = position.server_state
    slots = {name: values.numpy() for name, values in server_state.slots.items()}
    checkpoint = Checkpoint(
        policy_state=position.policy_state,
        ledger=server_state.ledger,
        broadcast=server_state.broadcast,
        row=position.row.numpy(),
        counters=position.counters.numpy(),
        server_slots=slots,
        attempt=position.attempt,
        discarded=position.discarded,
    )
    return checkpoint.encode()


def position_from(
    content: bytes, server: Server, layout: Layout, counter_width: int
) -> Position:
    """Where a run goes on; InputError for a checkpoint that does not fit it.

    Arguments:
        content: The checkpoint's.
        server: The run's, which knows the names of its slots.
        layout: The model's.
        counter_width: How many whole-number buffers the model has.
    """
    names = tuple(slot.name for slot in server.slots)
    shapes = Shapes(
        width=layout.width,
        counter_width=counter_width,
        server_slots=names,
    )
    saved = Checkpoint.decode(content, shapes)

    slots: dict[str, torch.Tensor] = {}
    for name, values in saved.server_slots.items():
        slots[name] = torch.from_numpy(values)
    server_state = ServerState(
        policy_state=saved.policy_state,
        ledger=saved.ledger,
        row=torch.from_numpy(saved.row),
        slots=slots,
        broadcast=saved.broadcast,
    )
    return Position(
        server_state,
        torch.from_numpy(saved.counters),
        saved.attempt,
        saved.discarded,
    )
