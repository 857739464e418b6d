"""Rows of another device: they are coded on the CPU, like all others, so that the bits do not depend on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedlama.compress.message import CodedMessage
from fedlama.compress.place import MessagePlace

if TYPE_CHECKING:
    from fedlama.compress.channel import Channel


def simulate_on_cpu(
    channel: Channel,
    difference: Tensor,
    due: Sequence[int],
    place: MessagePlace,
    *,
    anchor: Tensor | None,
    own: Mapping[str, Tensor] | None,
    warm: Tensor | None,
    out: Tensor | None,
) -> CodedMessage:
    """`Channel.simulate` on copies; what it writes is copied back to where the rows are."""
    copies: dict[str, Tensor] | None = None
    if own is not None:
        copies = {name: values.cpu() for name, values in own.items()}
    message = channel.simulate(
        difference.cpu(),
        due,
        place,
        anchor=_on_cpu(anchor),
        own=copies,
        warm=_on_cpu(warm),
    )
    if own is not None and copies is not None:
        for name, values in own.items():
            values.copy_(copies[name])

    decoded = message.row
    row = out
    if row is None:
        row = torch.zeros_like(difference)
    layers = sorted(set(due))
    written = channel.layout.slices_of(layers)
    # A message without layers has no statistics either
    if due:
        written += channel.layout.statistics
    for part in written:
        row[part] = decoded[part].to(difference.device)
    message.row = row
    return message


def _on_cpu(row: Tensor | None) -> Tensor | None:
    if row is None:
        return None
    return row.cpu()
