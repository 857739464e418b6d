"""What a downlink code makes of the broadcast. The server adopts what it sent, so that all copies stay equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedlama.base import DivergenceError
from fedlama.compress import Channel, MessagePlace
from fedlama.compress.numbers import NotCodableError
from fedlama.core import Message, RoundPlan
from fedlama.server.state import ServerState


def send(
    downlink: Channel | None,
    state: ServerState,
    plan: RoundPlan,
    row: Tensor,
    slots: Mapping[str, Tensor],
    *,
    place: MessagePlace | None,
    window_ends: bool,
) -> Message:
    """What a client that stays downloads of a new row, which becomes what clients will have of it.

    Arguments:
        downlink: The code, if there is one.
        state: The state before the round.
        plan: The round.
        row: The server's new row, changed in place.
        slots: The server's slots; those of the code are updated in place.
        place: Where the message belongs (default: to the round after the state).
        window_ends: Whether nobody stays: then all are sent the whole model as it is.
    """
    plain = state.ledger.plain_message(plan.renewed)
    if downlink is None:
        return plain
    if window_ends:
        send_remainder(
            downlink,
            row,
            plan.renewed,
            anchor=state.row,
            slots=slots,
        )
        return plain
    if place is None:
        place = MessagePlace(state.policy_state.round + 1, client=0)
    return send_coded(
        downlink,
        row,
        plan.renewed,
        place,
        anchor=state.row,
        slots=slots,
    )


def send_coded(
    downlink: Channel,
    row: Tensor,
    renewed: Sequence[int],
    place: MessagePlace,
    *,
    anchor: Tensor,
    slots: Mapping[str, Tensor],
) -> Message:
    """Replace what is new in a row by what clients will decode; the bytes of one client's message.

    Arguments:
        downlink: The code.
        row: The server's new row, changed in place.
        renewed: The layers that have a new value.
        place: Where the message belongs.
        anchor: The row before the round.
        slots: The server's slots; those of the code are updated in place.
    """
    difference = row - anchor
    try:
        message = downlink.simulate(
            difference,
            renewed,
            place,
            anchor=anchor,
            own=_slots_of(downlink, slots),
            out=difference,
        )
    except NotCodableError:
        raise DivergenceError.because(
            f"the server's change in round {place.round} was too large for a message"
        ) from None
    # What clients do not have, the server must not have either: it keeps the remainder in its slots.
    for part in downlink.layout.slices_with_statistics(renewed):
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
    own = _slots_of(downlink, slots)
    downlink.settle(difference, renewed, own)
    remainder = difference - without_remainder
    row.add_(remainder)


def _slots_of(downlink: Channel, slots: Mapping[str, Tensor]) -> dict[str, Tensor]:
    own: dict[str, Tensor] = {}
    for slot in downlink.slots:
        own[slot.name] = slots[slot.name]
    return own
