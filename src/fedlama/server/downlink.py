"""What a downlink code makes of the broadcast. The server adopts what it sent, so that all copies stay equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedlama.compress import Channel, Place
from fedlama.core import Message


def send_coded(
    downlink: Channel,
    row: Tensor,
    renewed: Sequence[int],
    place: Place,
    *,
    anchor: Tensor,
    slots: Mapping[str, Tensor],
) -> Message:
    """Replace what is new in a row by what clients will decode; what one client's message weighs.

    Arguments:
        downlink: The code.
        row: The server's new row, changed in place.
        renewed: The layers that have a new value.
        place: Where the message belongs.
        anchor: The row before the round.
        slots: The server's slots; those of the code are updated in place.
    """
    difference = row - anchor
    message = downlink.simulate(
        difference,
        renewed,
        place,
        anchor=anchor,
        own=_slots_of(downlink, slots),
        out=difference,
    )
    sent = [*downlink.layout.slices_of(renewed), *downlink.layout.statistics]
    for part in sent:
        torch.add(anchor[part], difference[part], out=row[part])
    return message.charged


def send_remainder(
    downlink: Channel,
    row: Tensor,
    renewed: Sequence[int],
    *,
    anchor: Tensor,
    slots: Mapping[str, Tensor],
) -> None:
    """Add to a row what coded messages left out: whoever comes next is sent all of it, as it is.

    Arguments:
        downlink: The code.
        row: The server's new row, changed in place.
        renewed: The layers that have a new value.
        anchor: The row before the round.
        slots: The server's slots; those of the code are updated in place.
    """
    difference = row - anchor
    without_remainder = difference.clone()
    downlink.settle(difference, renewed, _slots_of(downlink, slots))
    row.add_(difference - without_remainder)


def _slots_of(downlink: Channel, slots: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {slot.name: slots[slot.name] for slot in downlink.slots}
