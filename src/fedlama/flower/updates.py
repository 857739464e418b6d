"""What the server makes of replies: an update that counts, or a reason why it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from logging import WARNING

import torch
from flwr.app import Array, Message, RecordDict
from flwr.common import log
from torch import Tensor

from fedlama.base import InputError, shown
from fedlama.compress import Decoded
from fedlama.core import Layout, RoundPlan
from fedlama.core import Message as Bytes
from fedlama.flower.wire import (
    CODED,
    PLAIN,
    NotFiniteError,
    Report,
    all_slices,
    check_loss,
    read_array,
    read_plain,
    read_report,
)
from fedlama.rows import exact_means, magnitudes, squared_distances
from fedlama.training.coding import Uplink
from fedlama.training.faults import FAILED_DURING, LATE, NOT_FINITE
from fedlama.training.values import Position

REFUSED = "refused"
SLACK = 4096  # bytes that a coded message may be longer than plain numbers


@dataclass(frozen=True, kw_only=True)
class Update:
    """One client's reply: its row with the due layers in it, or the reason why it is excluded. Its bytes count."""

    row: Tensor | None = None
    loss: float = 0.0
    counters: tuple[int, ...] = ()
    decoded: Decoded | None = None
    upload: Bytes = field(default_factory=Bytes)
    reason: str | None = None


class Reader:
    """Reads the replies of one round.

    Arguments:
        position: Where the run stands before the round.
        plan: The round.
        layout: The model's.
        uplink: The code of the replies, if any.
        tag: What a reply to this round's tasks is marked with.
    """

    def __init__(self, position: Position, plan: RoundPlan, layout: Layout, uplink: Uplink | None, *, tag: str) -> None:
        self.position = position
        self.plan = plan
        self.layout = layout
        self.uplink = uplink
        self.tag = tag

    def has_lost_its_state(self, reply: Message) -> bool:
        """Whether the client says that it cannot go on from where the server thinks it is."""
        if reply.has_error():
            return False
        try:
            return read_report(reply.content, len(self.position.counters)).lost
        except InputError:
            return False

    def read(self, client: int, reply: Message | None) -> Update:
        """The update of a client, which may have sent anything, or nothing."""
        if reply is None:
            return Update(reason=LATE)
        if reply.has_error():
            log(WARNING, "client %s: %s", client, shown(reply.error.reason or ""))
            return Update(reason=f"{FAILED_DURING} (Flower's error {reply.error.code})")
        upload = self._weight(reply.content)
        try:
            report = read_report(reply.content, len(self.position.counters))
            self._check_round(report)
            row, decoded = self._row(client, read_array(reply.content))
            check_loss(report.loss)
        except NotFiniteError:
            return Update(reason=NOT_FINITE, upload=upload)
        except InputError as error:
            return Update(reason=f"{REFUSED}: {error}", upload=upload)
        return self._accepted(report, row, decoded, upload)

    def _check_round(self, report: Report) -> None:
        if report.lost or report.tag != self.tag:
            raise InputError("it replied to another round")

    def _accepted(self, report: Report, row: Tensor, decoded: Decoded | None, upload: Bytes) -> Update:
        if decoded is not None:
            upload = decoded.charged
        return Update(row=row, loss=report.loss, counters=tuple(report.counters), decoded=decoded, upload=upload)

    def _row(self, client: int, array: Array) -> tuple[Tensor, Decoded | None]:
        due = self.plan.due
        slices = all_slices(self.layout, due)
        row = self.position.row.clone()
        if self.uplink is None or array.stype == PLAIN:
            read_plain(array, row, slices)
            if self.uplink is not None:
                raise InputError("plain numbers where a coded message was due")
            return row, None
        if array.stype != CODED:
            raise InputError(f"wrong type: {shown(array.stype)} where a coded message was due")
        numbers = sum(part.stop - part.start for part in slices)
        if len(array.data) > 4 * numbers + SLACK:
            raise InputError(f"wrong shape: {len(array.data)} coded bytes for {numbers} numbers")
        place = self.uplink.place(self.position, self.plan, client)
        decoded = self.uplink.channel.unpack(array.data, due, place, anchor=self.position.row)
        for part in slices:
            torch.add(self.position.row[part], decoded.row[part], out=row[part])
        return row, decoded

    def _weight(self, content: RecordDict) -> Bytes:
        """The bytes of a reply, whatever is in it, as if they were layers."""
        total = 0
        for record in content.array_records.values():
            total += sum(len(array.data) for array in record.values())
        plain = self.position.server.ledger.plain_message(self.plan.due)
        if total == plain.total or not self.plan.due:
            return plain
        return Bytes({self.plan.due[-1]: total})


class UpdatesReduce:
    """Adds up the updates that count, as the simulator does: to the same bits, in any order.

    Arguments:
        layout: The model's.
        updates: Those that count.
        weights: What each weighs; they add up to one.
        uplink: Their code, if any.
        position: Where the run stood before the round.
        plan: The round.
    """

    def __init__(
        self,
        layout: Layout,
        updates: Sequence[Update],
        weights: Sequence[float],
        *,
        uplink: Uplink | None,
        position: Position,
        plan: RoundPlan,
    ) -> None:
        self.layout = layout
        self.rows = torch.stack([update.row for update in updates if update.row is not None])
        self.decoded = [update.decoded for update in updates if update.decoded is not None]
        self.weights = list(weights)
        self.uplink = uplink
        self.position = position
        self.plan = plan

    @property
    def clients(self) -> int:
        """How many updates count."""
        return len(self.rows)

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices, one behind the other."""
        largest = magnitudes(self.rows, slices).amax(dim=0).tolist()
        return exact_means(self.rows, self.weights, slices, largest, lambda sums: None)

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² for every due layer; of coded updates as it would be without the code."""
        if self.uplink is not None:
            return self.uplink.spread(self.weights, self.decoded, mean, self.position, self.plan)
        columns = iter(squared_distances(mean, self.rows, self.layout.slices_of(due)).T.tolist())
        result: dict[int, float] = {}
        for layer in due:
            total = 0.0
            for _ in self.layout.layers[layer].slices:
                total += sum(weight * square for weight, square in zip(self.weights, next(columns), strict=True))
            result[layer] = total
        return result
