"""What a sender keeps from one message to the next: rows, which are called one thing by it and another by its codec.

One sender may keep rows for both directions of a federation, so the name of a row begins with its direction. A codec
knows nothing of directions and finds its rows under the names that it gave them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from fedlama.base import InputError
from fedlama.compress.codec import Codec
from fedlama.core import Layout
from fedlama.rows import Slot, views


class SenderSlots:
    """The rows that a sender keeps for one direction.

    Arguments:
        codec: Whose rows they are.
        layout: The model's.
        direction: "uplink" or "downlink".
    """

    def __init__(self, codec: Codec, layout: Layout, direction: str) -> None:
        self._codec = codec
        self._layout = layout
        self._direction = direction

    @property
    def named(self) -> tuple[Slot, ...]:
        """The codec's slots, named after the direction."""
        named: list[Slot] = []
        for slot in self._codec.slots:
            name = f"{self._direction} {slot.name}"
            renamed = replace(slot, name=name)
            named.append(renamed)
        return tuple(named)

    def of_codec(self, own: Mapping[str, Tensor] | None) -> dict[str, Tensor] | None:
        """The sender's rows under the codec's own names; None where nothing is kept."""
        if own is None:
            return None
        slots = self._codec.slots
        if not slots:
            return None
        rows: dict[str, Tensor] = {}
        for slot, named in zip(slots, self.named, strict=True):
            name = named.name
            if name not in own:
                raise InputError(f"the slot {name!r} is missing")
            rows[slot.name] = own[name]
        return rows

    def settle(
        self, difference: Tensor, due: Sequence[int], own: Mapping[str, Tensor]
    ) -> None:
        """Add to a difference all that earlier messages left out, in place, after which nothing is left over."""
        rows = self.of_codec(own)
        if rows is None:
            return
        layers = sorted(set(due))
        for part in self._layout.slices_of(layers):
            here = views(rows, part)
            target = self._codec.target(difference[part], here)
            # All of it arrives, so for the codec it was decoded without an error.
            self._codec.remember(target, target, here)
            difference[part] = target
        for part in self._layout.statistics:
            here = views(rows, part)
            changes = difference[part]
            self._codec.remember(changes, changes, here)
