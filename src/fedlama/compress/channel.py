"""Messages: the due layers of one client, coded, with the exact norms that the discrepancy needs.

A simulator, an averager and a deployment use the same `Channel`. `simulate` codes and decodes without running the
entropy coder and tells what the bytes would be; `pack` and `unpack` make real bytes and give the same numbers, bit
for bit. `message.py` has the format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fedlama.base import InputError, check_choice, shown
from fedlama.compress.codec import Codec
from fedlama.compress.discrepancy import estimated_spread, mean_kept
from fedlama.compress.elsewhere import simulate_on_cpu
from fedlama.compress.framing import Reader, unsealed
from fedlama.compress.group_code import GroupCode
from fedlama.compress.groups import MessageGroups, TensorGroup, squares
from fedlama.compress.message import (
    CodedMessage,
    Decoded,
    all_runs,
    as_sent,
    estimated_nbytes,
    head_of,
    read_head,
    shared_out,
)
from fedlama.compress.place import MessagePlace
from fedlama.compress.scratch import begin_message
from fedlama.compress.sender_slots import SenderSlots
from fedlama.compress.statistics import Statistics
from fedlama.compress.streams import read_stream
from fedlama.core import Layout
from fedlama.rows import Slot

DIRECTIONS = ("uplink", "downlink")


class Channel:
    """One direction of a federation's traffic under one codec.

    Arguments:
        codec: Codes the large tensors; what it prescribes for small ones codes the rest.
        layout: The model's.
        seed: The run's.
        direction: "uplink" or "downlink"; the draws of the two differ.
    """

    def __init__(
        self, codec: Codec, layout: Layout, *, seed: int, direction: str = "uplink"
    ) -> None:
        if not isinstance(codec, Codec):
            raise InputError(
                f"{direction} must be a codec of fedlama.compress, not {shown(codec)}"
            )
        check_choice("direction", direction, DIRECTIONS)
        codec = codec.fitted(layout)
        self.codec = codec
        self.layout = layout
        self.seed = seed
        self.direction = direction
        self._group_code = GroupCode(codec, layout, seed=seed, direction=direction)
        self._slots = SenderSlots(codec, layout, direction)
        self._statistics = Statistics(layout)
        self._message_groups = MessageGroups(layout, self._statistics)
        self._groups = lru_cache(maxsize=64)(self._find_groups)
        self._common = f"{codec!r}/{seed}/{direction}"
        self._sizes = str(layout.sizes)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The rows that a sender keeps: the codec's, named after the direction."""
        return self._slots.named

    # At the sender

    def simulate(
        self,
        difference: Tensor,
        due: Sequence[int],
        place: MessagePlace,
        *,
        anchor: Tensor | None = None,
        own: Mapping[str, Tensor] | None = None,
        warm: Tensor | None = None,
        out: Tensor | None = None,
    ) -> CodedMessage:
        """Code and decode one sender's difference without running the entropy coder.

        Arguments:
            difference: x − anchor, a row of the layout.
            due: The numbers of the layers in the message.
            place: Where the message belongs.
            anchor: The last synchronised row; needed where the model has BatchNorm's statistics.
            own: The sender's slots by the names in `slots`, rows of the same width. Their coded parts are updated in
                place.
            warm: The server's last change, a row.
            out: Where the decoded differences are written, which may be `difference` itself (default: a row of zeros).
        """
        if difference.device.type != "cpu":
            return simulate_on_cpu(
                self,
                difference,
                due,
                place,
                anchor=anchor,
                own=own,
                warm=warm,
                out=out,
            )
        begin_message()
        groups = self._groups(tuple(due))
        exact_sq = as_sent(squares(groups, difference))
        head = head_of(exact_sq)
        slots = self._slots.of_codec(own)
        targets = self._group_code.targets(groups, difference, anchor, slots)
        rates = self._group_code.rates(groups, targets, place)
        coded = self._group_code.code(groups, targets, rates, place, warm)
        decoded = self._group_code.rebuild(groups, coded, place)

        row = out
        if row is None:
            row = torch.zeros_like(difference)
        parts = zip(groups, targets, coded, decoded, strict=True)
        for group, target, one, values in parts:
            self._group_code.remember(group, target, values, slots)
            received = self._group_code.received(group, one, values, anchor, place)
            group.write(row, received)

        layers = list(exact_sq)
        nbytes = estimated_nbytes(head, coded)
        return CodedMessage(
            row=row,
            exact_sq=exact_sq,
            decoded_sq=squares(groups, row),
            kept=self._group_code.kept(groups, coded),
            charged=shared_out(groups, coded, layers, nbytes),
            head=head,
            coded=coded,
            context=self._context(due, place),
        )

    def pack(
        self,
        difference: Tensor,
        due: Sequence[int],
        place: MessagePlace,
        *,
        anchor: Tensor | None = None,
        own: Mapping[str, Tensor] | None = None,
        warm: Tensor | None = None,
    ) -> bytes:
        """The real bytes of one sender's difference.

        Arguments:
            difference: What is coded, as in `simulate`; so are the others.
            due: The layers in the message.
            place: Who sends it and when.
            anchor: The last synchronised row.
            own: The sender's slots.
            warm: The server's last change.
        """
        message = self.simulate(
            difference,
            due,
            place,
            anchor=anchor,
            own=own,
            warm=warm,
        )
        return message.to_bytes()

    def settle(
        self, difference: Tensor, due: Sequence[int], own: Mapping[str, Tensor]
    ) -> None:
        """Add to a difference all that earlier messages left out, in place: for receivers that are sent it uncoded.

        Nothing is left over afterwards. Statistics keep their difference: they are estimated anew in every round, and
        nothing of them is owed.

        Arguments:
            difference: x − anchor, a row of the layout.
            due: The layers that are sent.
            own: The sender's slots by the names in `slots`.
        """
        self._slots.settle(difference, due, own)

    # At the receiver, who is the sender, too

    def unpack(
        self,
        content: bytes,
        due: Sequence[int],
        place: MessagePlace,
        *,
        anchor: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Decoded:
        """Decode a message of these layers, or refuse it.

        Arguments:
            content: The bytes.
            due: The layers that they should be of.
            place: Where the message belongs.
            anchor: The sender's, bit for bit.
            out: Where the decoded differences are written (default: a row of zeros).
        """
        groups = self._groups(tuple(due))
        context = self._context(due, place)
        body = unsealed(bytes(content), context)
        reader = Reader(body)
        layers = sorted(set(due))
        norms = read_head(reader, len(layers))
        coded = self._group_code.expect(groups, reader)
        runs = all_runs(coded)
        read_stream(reader.rest(), runs)

        # Everything is decoded before anything is written, so that a refused message leaves the row as it was.
        received = self._group_code.read(groups, coded, anchor, place)
        row = out
        if row is None:
            row = torch.zeros(self.layout.width)
        for group, values in zip(groups, received, strict=True):
            group.write(row, values)

        exact_sq = dict(zip(layers, norms, strict=True))
        return Decoded(
            row=row,
            exact_sq=exact_sq,
            decoded_sq=squares(groups, row),
            kept=self._group_code.kept(groups, coded),
            charged=shared_out(groups, coded, layers, len(content)),
        )

    def spread(
        self,
        weights: Sequence[float],
        messages: Sequence[Decoded],
        mean_sq: Mapping[int, float],
        place: MessagePlace,
    ) -> dict[int, float]:
        """Σ w_i‖x_i − u‖² of each layer as it would be without the code (`discrepancy.py`).

        Arguments:
            weights: Of the senders; they add up to one.
            messages: Theirs.
            mean_sq: ‖Σ w_iΔ̂_i‖² of each due layer.
            place: Where the messages belong, whoever sent them.
        """
        groups = self._groups(tuple(mean_sq))
        codecs = self._group_code.main_codecs(groups)
        kept = mean_kept(weights, [message.kept for message in messages], mean_sq)
        gains = self._group_code.gains(groups, place, kept)
        result: dict[int, float] = {}
        for layer, square in mean_sq.items():
            result[layer] = estimated_spread(
                codecs[layer],
                place.of_layer(layer),
                gain=gains[layer],
                weights=weights,
                exact_sq=[message.exact_sq[layer] for message in messages],
                decoded_sq=[message.decoded_sq[layer] for message in messages],
                kept=kept[layer],
                mean_sq=square,
            )
        return result

    # What both ends know

    def _find_groups(self, due: tuple[int, ...]) -> tuple[TensorGroup, ...]:
        count = len(self.layout.layers)
        for layer in due:
            if not 0 <= layer < count:
                raise InputError(f"there is no layer {layer}: the model has {count}")
        # Statistics travel with layers: where none is due, there is no message
        has_layers = bool(due)
        return self._message_groups.of(due, statistics=has_layers)

    def _context(self, due: Sequence[int], place: MessagePlace) -> str:
        """What both ends know of a message and nobody sends; its checksum is over it, too."""
        layers = sorted(set(due))
        parts = (
            self._common,
            place.round,
            place.client,
            place.round_in_window,
            place.rounds_per_window,
            ",".join(map(str, layers)),
            self._sizes,
        )
        return "/".join(map(str, parts))
