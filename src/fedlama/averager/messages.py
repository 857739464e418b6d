"""Coded updates: one message from every rank to every rank, decoded by all of them in the same order."""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

from fedlama.averager.ranks import Ranks
from fedlama.base import RunError
from fedlama.compress import Channel, Decoded, MessagePlace
from fedlama.compress.numbers import NotCodableError
from fedlama.core import BYTES_PER_NUMBER, RoundPlan

CANNOT_BE_SENT = 0xFFFFFFFF  # in place of a message's length
LENGTH = struct.Struct("<I")
# A buffer is longer by an eighth than the longest message that is expected
SPARE = 8
FRAME_BYTES = 64  # of a message that no number takes: format, checksum, norms and scales of a few layers
BITS_PER_NUMBER = 8 * BYTES_PER_NUMBER
MAX_KNOWN = 1024  # lengths that are remembered


class Messages:
    """Codes what this rank sends, and decodes what all ranks sent.

    Messages differ in length, and an all-gather needs buffers of one length that every rank knows before: that of the
    longest message when the same layers were due, and an eighth more. Where they were never due together, what a number
    took in the round before tells how long a message will be. Where one is longer than that, everyone sees its length,
    and a second all-gather brings the rest.

    Arguments:
        channel: The code.
        ranks: The processes that average with each other.
        row: The model; residuals are as wide.
    """

    def __init__(self, channel: Channel, ranks: Ranks, row: Tensor) -> None:
        self.channel = channel
        self.ranks = ranks
        self.residuals: dict[str, Tensor] = {}
        for slot in channel.slots:
            self.residuals[slot.name] = torch.zeros_like(row)
        # What a message of all layers would take, by the latest one; 0 before the first
        self.whole_length = 0
        self._longest: dict[tuple[int, ...], int] = {}  # by the layers that were due
        self.handed_bytes = 0  # to the process group, padding included

    def restore(self, residuals: dict[str, Tensor], whole_length: int) -> None:
        """Go on from a state.

        Arguments:
            residuals: What the code left out by then, by the name of its slot.
            whole_length: What a message of all layers would have taken.
        """
        self.residuals = residuals
        self.whole_length = whole_length
        # No state has these. A rank that goes back in place must forget them, too: beside one that was started again
        # its buffer would be of another length, and an all-gather of both would never end, or give nonsense.
        self._longest.clear()

    def code(
        self,
        row: Tensor,
        anchor: Tensor,
        plan: RoundPlan,
        place: MessagePlace,
        warm: Tensor | None,
    ) -> bytes | None:
        """This rank's message, None where its weights cannot be sent; its residuals are updated.

        Arguments:
            row: This rank's.
            anchor: The row that all ranks had in common.
            plan: The round.
            place: Where this rank's message belongs.
            warm: The server's last change, where the code wants it.
        """
        difference = row - anchor
        if not bool(difference.isfinite().all()):
            return None
        try:
            message = self.channel.simulate(
                difference,
                plan.due,
                place,
                anchor=anchor,
                own=self.residuals,
                warm=warm,
            )
        except NotCodableError:
            return None
        return message.to_bytes()

    def decode(
        self, contents: list[bytes], anchor: Tensor, plan: RoundPlan, round_: int
    ) -> list[Decoded]:
        """What every rank sent, in their order.

        Arguments:
            contents: The messages.
            anchor: The row that they change.
            plan: The round.
            round_: Its number.
        """
        decoded: list[Decoded] = []
        for rank, content in enumerate(contents):
            place = MessagePlace(round_, client=rank)
            message = self.channel.unpack(
                content,
                plan.due,
                place,
                anchor=anchor,
            )
            decoded.append(message)
        return decoded

    def exchange(
        self, content: bytes | None, due: tuple[int, ...], step: int
    ) -> list[bytes]:
        """Every rank's message, in their order.

        Arguments:
            content: This rank's; None where its weights cannot be sent, which ends the training on all ranks.
            due: The layers in it.
            step: How many steps were taken, for the sentence that says so.
        """
        capacity = self._capacity(due)
        # A rank that cannot send says so in its message: if it raised here, the others would wait for it for ever.
        if content is None:
            buffer = LENGTH.pack(CANNOT_BE_SENT)
        else:
            buffer = LENGTH.pack(len(content)) + content

        received = self._gather(buffer[:capacity], capacity)
        lengths: list[int] = []
        for one in received:
            (length,) = LENGTH.unpack_from(one)
            lengths.append(length)
        if CANNOT_BE_SENT in lengths:
            rank = lengths.index(CANNOT_BE_SENT)
            raise RunError(
                f"the weights of rank {rank} are not finite, or too large to be sent, after step {step}: the training "
                f"diverged"
            )

        longest = LENGTH.size + max(lengths)
        if longest > capacity:
            received = self._with_rest(received, buffer, capacity, longest)
        self._note_length(due, max(lengths))

        messages: list[bytes] = []
        for one, length in zip(received, lengths, strict=True):
            end = LENGTH.size + length
            message = one[LENGTH.size : end]
            messages.append(message)
        return messages

    def _capacity(self, due: tuple[int, ...]) -> int:
        """How long a buffer for these layers is, the same on all ranks."""
        expected = self._expected(due)
        # Too long costs a few bytes, too short another exchange
        spare = expected // SPARE
        return LENGTH.size + expected + spare

    def _expected(self, due: tuple[int, ...]) -> int:
        """As long as the last message of these layers, or what its share of the numbers lets expect."""
        last = self._longest.get(due)
        if last is not None:
            return last
        whole = self.whole_length or self._first_guess()
        of_numbers = whole * self._share(due)
        return FRAME_BYTES + math.ceil(of_numbers)

    def _share(self, due: tuple[int, ...]) -> float:
        """Which share of all numbers a message of these layers holds."""
        in_message = self._numbers(due)
        altogether = self._numbers(None)
        return in_message / altogether

    def _first_guess(self) -> int:
        """What a message of all layers takes by the rate of its code, or as float32 where it has none."""
        rate = self.channel.codec.rate
        if rate is None:
            rate = BITS_PER_NUMBER
        bits = rate * self._numbers(None)
        return math.ceil(bits / 8)

    def _numbers(self, due: tuple[int, ...] | None) -> int:
        """How many numbers a message of these layers holds, or of all of them."""
        layout = self.channel.layout
        if due is None:
            due = tuple(range(len(layout.layers)))
        numbers = layout.statistics_size
        for number in due:
            layer = layout.layers[number]
            numbers += layer.size
        return numbers

    def _note_length(self, due: tuple[int, ...], longest: int) -> None:
        if len(self._longest) >= MAX_KNOWN:
            self._longest.clear()
        self._longest[due] = longest
        whole = longest / self._share(due)
        self.whole_length = math.ceil(whole)

    def _with_rest(
        self, received: list[bytes], buffer: bytes, capacity: int, longest: int
    ) -> list[bytes]:
        """What was received, with what did not fit into the first buffers, up to the longest message of all ranks."""
        missing = longest - capacity
        rest = self._gather(buffer[capacity:], missing)
        whole: list[bytes] = []
        for begun, end in zip(received, rest, strict=True):
            whole.append(begun + end)
        return whole

    def _gather(self, content: bytes, length: int) -> list[bytes]:
        self.handed_bytes += length
        return self.ranks.gather(content, length)
