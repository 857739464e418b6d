"""What the server makes of replies: an update that counts, or a reason why it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from logging import WARNING

from flwr.app import Message, RecordDict
from flwr.common import log
from torch import Tensor

from fedlama.base import InputError, printable, shown
from fedlama.compress import Decoded
from fedlama.core import Layout, RoundPlan
from fedlama.core import Message as Bytes
from fedlama.flower.packing import (
    NotFiniteError,
    Packed,
    check_coded,
    plain_numbers,
    size_of,
)
from fedlama.flower.reports import check_counters, read_reply
from fedlama.rows import unpack
from fedlama.server.exclusions import FAILED_DURING, LATE, NOT_FINITE, REFUSED
from fedlama.server.tolerance import Tolerance, update_norms
from fedlama.training.coding import Uplink
from fedlama.training.position import Position

MAX_REASON = 200  # characters of a client's error


@dataclass(frozen=True, kw_only=True)
class Update:
    """One client's reply: its row with the due layers in it, or the reason why it is excluded. Its bytes count."""

    row: Tensor | None = None
    loss: float = 0.0
    counters: tuple[int, ...] = ()
    decoded: Decoded | None = None
    upload: Bytes = field(default_factory=Bytes)
    reason: str | None = None


class ReplyReader:
    """Reads the replies of one round.

    Arguments:
        position: Where the run stands before the round.
        plan: The round.
        layout: The model's.
        uplink: The code of the replies, if any.
        tag: What a reply to this round's tasks is marked with.
        tolerance: Which updates the server refuses.
    """

    def __init__(
        self,
        position: Position,
        plan: RoundPlan,
        layout: Layout,
        uplink: Uplink | None,
        *,
        tag: str,
        tolerance: Tolerance,
    ) -> None:
        self.position = position
        self.plan = plan
        self.layout = layout
        self.uplink = uplink
        self.tag = tag
        self.tolerance = tolerance

    def has_lost_its_state(self, reply: Message) -> bool:
        """Whether the client says that it cannot go on from where the server thinks it is.

        Arguments:
            reply: The client's.
        """
        if reply.has_error():
            return False
        try:
            report, _ = read_reply(reply.content, len(self.position.counters))
        except InputError:
            return False
        return report.lost

    def read(self, client: int, reply: Message | None) -> Update:
        """The update of a client, which may have sent anything, or nothing.

        Arguments:
            client: Its number.
            reply: What it sent before the deadline.
        """
        if reply is None:
            return Update(reason=LATE)
        if reply.has_error():
            error = reply.error
            log(WARNING, "client %s: %s", client, shown(error.reason or ""))
            why = f"Flower's error {error.code}"
            if error.reason:
                # What the client says, such as how to name a folder for its state
                why += f": {printable(error.reason, MAX_REASON)}"
            return Update(reason=f"{FAILED_DURING} ({why})")

        try:
            return self._accept(client, reply.content)
        except NotFiniteError:
            reason = NOT_FINITE
        except InputError as refusal:
            reason = f"{REFUSED}: {refusal}"
        upload = self._size_of(reply.content)
        return Update(reason=reason, upload=upload)

    def _accept(self, client: int, content: RecordDict) -> Update:
        """The update in a reply, or InputError."""
        report, packed = read_reply(content, len(self.position.counters))
        if report.lost or report.tag != self.tag:
            raise InputError("it replied to another round")
        check_counters(
            report.counters,
            before=self.position.counters.tolist(),
            steps=self.plan.steps,
        )

        decoded: Decoded | None = None
        if self.uplink is None:
            row = self._plain_row(packed)
            upload = self._size_of(content)
        else:
            decoded = self._decoded(client, packed, self.uplink)
            row = self._moved_row(decoded)
            upload = decoded.charged
        refusal = self.tolerance.refusal(
            loss=report.loss,
            # Other numbers are refused as they are read, before memory is asked for
            weights_are_finite=True,
            norm=self._norm(row),
        )
        if refusal is not None:
            return Update(reason=refusal, upload=self._size_of(content))
        return Update(
            row=row,
            loss=report.loss,
            counters=tuple(report.counters),
            decoded=decoded,
            upload=upload,
        )

    def _norm(self, row: Tensor) -> float | None:
        """That of the update, where there is a limit."""
        if self.tolerance.norm_limit is None:
            return None
        norms = update_norms(
            row[None],
            self.position.row,
            self.layout,
            self.plan.due,
        )
        return float(norms)

    def _moved_row(self, decoded: Decoded) -> Tensor:
        """The client's row: the anchor, moved by what was decoded."""
        anchor = self.position.row
        change = decoded.row
        row = anchor.clone()
        for part in self._due_slices():
            row[part] = anchor[part] + change[part]
        return row

    def _plain_row(self, packed: Packed) -> Tensor:
        slices = self._due_slices()
        # Checked before memory is asked for: a row is as large as the whole model.
        numbers = plain_numbers(packed, size_of(slices))
        row = self.position.row.clone()
        unpack(numbers, row, slices)
        return row

    def _due_slices(self) -> list[slice]:
        """What a reply must hold: the due layers, and the statistics."""
        return self.layout.slices_with_statistics(self.plan.due)

    def _decoded(self, client: int, packed: Packed, uplink: Uplink) -> Decoded:
        check_coded(packed, size_of(self._due_slices()))
        place = uplink.place(self.position, self.plan, client)
        return uplink.channel.unpack(
            packed.content,
            self.plan.due,
            place,
            anchor=self.position.row,
        )

    def _size_of(self, content: RecordDict) -> Bytes:
        """The bytes of a reply, whatever is in it, as if they were layers."""
        total = 0
        for record in content.array_records.values():
            for array in record.values():
                total += len(array.data)

        due = self.plan.due
        ledger = self.position.server_state.ledger
        plain = ledger.plain_message(due)
        if total == plain.total or not due:
            return plain
        return Bytes({due[-1]: total})
