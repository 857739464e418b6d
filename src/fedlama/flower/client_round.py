"""One round of one client: overlay what was received on the state kept, train, keep, reply with the due layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from flwr.app import Context, RecordDict
from torch import Tensor, nn

from fedlama.base import InputError
from fedlama.compress import Channel
from fedlama.flower.codes import channel_of, place_from_plain
from fedlama.flower.packing import (
    CODED,
    Packed,
    all_slices,
    pack_plain,
    read_plain,
    read_rule_rows,
)
from fedlama.flower.state import (
    ClientState,
    forget_state,
    load_outliving,
    load_state,
    store_state,
)
from fedlama.flower.trainers import ANCHOR, ROW, ClientTrainer
from fedlama.flower.wire import Download, Report, Task, layout_digest, report_record
from fedlama.rows import Binding, Slot, describe
from fedlama.server import LAST_CHANGE

Rows = dict[str, Tensor]


class ClientRound:
    """One round.

    Arguments:
        module: The client's model, whose weights do not matter.
        task: What the server asks for.
        trainer: Takes the local steps.
        context: Flower's, with what the client kept.
    """

    def __init__(
        self, module: nn.Module, task: Task, trainer: ClientTrainer, context: Context
    ) -> None:
        self.task = task
        self.trainer = trainer
        self.context = context
        self.layout = describe(module, task.grouping)
        self.binding = Binding(module.train(), self.layout)
        if layout_digest(self.layout, self.binding.counter_width) != task.layout:
            raise InputError(
                "the client's model is not the server's: their layers, statistics or counters differ; "
                "if it has frozen or tied weights or buffers of its own, pass model= to the strategy's start"
            )
        self.uplink = channel_of(task.uplink, self.layout, task.seed, "uplink")
        self.downlink = channel_of(task.downlink, self.layout, task.seed, "downlink")

    def play(self, download: Download) -> RecordDict:
        """Train and reply, or say that the state is not what the server thinks.

        Arguments:
            download: What came with the task.
        """
        task = self.task
        if task.expects:
            kept = load_state(self.context, task.run, task.client, self.layout.width)
            if kept.tag != task.expects:
                return report_record(Report(tag=kept.tag, lost=True))
            rows = kept.rows
            self._overlay(rows, download.layers)
        else:
            rows = self._enter(download.layers)
        self._read_rule_rows(rows, download.beside)
        counters = torch.tensor(task.counters, dtype=torch.int64)
        loss = self.trainer.train(task, self.binding, rows, counters, self.context)
        upload = self._upload(rows)
        self._store(rows)
        report = Report(tag=task.tag, loss=loss, counters=counters.tolist())
        return report_record(report, upload)

    @property
    def _slots(self) -> tuple[Slot, ...]:
        """All that is kept beside the client's row, the anchor and the rows that the local rule is sent."""
        slots = list(self.trainer.slots)
        if self.uplink is not None:
            slots += self.uplink.slots
            if self.uplink.codec.wants_warm:
                slots.append(Slot(LAST_CHANGE))
        return tuple(slots)

    @property
    def _outliving(self) -> list[str]:
        """The slots that outlive a window."""
        return [slot.name for slot in self._slots if slot.lifetime == "run"]

    def _enter(self, sent: Packed) -> Rows:
        """The rows of a client that is sent the whole model."""
        task = self.task
        width = self.layout.width
        anchor = torch.zeros(width)
        read_plain(sent, anchor, all_slices(self.layout, task.sent))
        rows = {ANCHOR: anchor, ROW: anchor.clone()}
        for name in self.trainer.sends:
            rows[name] = torch.zeros(width)
        for slot in self._slots:
            rows[slot.name] = torch.zeros(width)
        if not self._outliving:
            return rows
        earlier = load_outliving(
            self.context, task.run, task.client, width, window=task.window
        )
        for name in self._outliving:
            if name in earlier.rows:
                rows[name] = earlier.rows[name]
        return rows

    def _overlay(self, rows: Rows, sent: Packed) -> None:
        """Write what was averaged last over the client's own numbers."""
        task = self.task
        slices = all_slices(self.layout, task.sent)
        anchor = rows[ANCHOR]
        before = anchor.clone()
        if self.downlink is None:
            read_plain(sent, anchor, slices)
        else:
            assert task.sent_place is not None, "a coded download comes with its place"
            place = place_from_plain(task.sent_place)
            decoded = self.downlink.unpack(
                sent.content, task.sent, place, anchor=before
            )
            for part in slices:
                torch.add(before[part], decoded.row[part], out=anchor[part])
        for part in slices:
            rows[ROW][part] = anchor[part]
        if LAST_CHANGE in rows:
            for part in self.layout.slices_of(task.sent):
                rows[LAST_CHANGE][part] = anchor[part] - before[part]

    def _read_rule_rows(self, rows: Rows, content: bytes) -> None:
        """What the local rule was sent beside the layers."""
        if self.trainer.sends:
            sent = [rows[name] for name in self.trainer.sends]
            read_rule_rows(content, sent, self.layout.slices_of(self.task.sent))

    def _upload(self, rows: Rows) -> Packed:
        row = rows[ROW]
        slices = all_slices(self.layout, self.task.due)
        # No code can hold what is not finite; the server will refuse it by its name.
        if self.uplink is None or not _is_finite(row, slices):
            return pack_plain(row, slices)
        content = self._coded(self.uplink, rows)
        return Packed(CODED, content)

    def _coded(self, channel: Channel, rows: Rows) -> bytes:
        return channel.pack(
            rows[ROW] - rows[ANCHOR],
            self.task.due,
            place_from_plain(self.task.place),
            anchor=rows[ANCHOR],
            own={slot.name: rows[slot.name] for slot in channel.slots},
            warm=rows.get(LAST_CHANGE),
        )

    def _store(self, rows: Rows) -> None:
        """Keep what the next round, or the client's next window, needs."""
        task = self.task
        context = self.context
        state = ClientState(
            tag=task.tag,
            run=task.run,
            window=task.window,
            rows=rows,
        )
        if task.keep == "everything":
            store_state(context, task.client, state)
            return
        forget_state(context, task.client, task.run)
        if task.keep == "nothing":
            forget_state(context, task.client, task.run, part="run")
        elif self._outliving:
            state.rows = {name: rows[name] for name in self._outliving}
            store_state(context, task.client, state, part="run")


def _is_finite(row: Tensor, slices: Sequence[slice]) -> bool:
    finite = [bool(row[part].isfinite().all()) for part in slices]
    return all(finite)
