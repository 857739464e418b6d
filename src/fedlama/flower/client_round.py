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
    pack_plain,
    read_plain,
    read_rule_rows,
)
from fedlama.flower.reports import Report, report_record
from fedlama.flower.state import (
    ClientState,
    check_size,
    forget_state,
    load_outliving,
    load_state,
    store_state,
)
from fedlama.flower.tasks import Download, Task, layout_digest
from fedlama.flower.trainers import ANCHOR, ROW, ClientTrainer, LocalWork
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
        digest = layout_digest(self.layout, self.binding.counter_width)
        if digest != task.layout:
            raise InputError(
                "the client's model is not the server's: their layers, statistics or counters differ; "
                "if it has frozen or tied weights or buffers of its own, pass model= to the strategy's start"
            )

        self.uplink = channel_of(
            task.uplink,
            self.layout,
            task.seed,
            "uplink",
        )
        self.downlink = channel_of(
            task.downlink,
            self.layout,
            task.seed,
            "downlink",
        )

    def play(self, download: Download) -> RecordDict:
        """Train and reply, or say that the state is not what the server thinks.

        Arguments:
            download: What came with the task.
        """
        task = self.task
        if task.expects:
            kept = load_state(self.context, task.run, task.client, self.layout.width)
            if kept.tag != task.expects:
                lost = Report(tag=kept.tag, lost=True)
                return report_record(lost)
            rows = kept.rows
            self._overlay(rows, download.layers)
        else:
            rows = self._enter(download.layers)
        self._read_rule_rows(rows, download.beside)
        # Before the client spends minutes on training what it then cannot keep.
        check_size(self.context, self._kept(rows))

        counters = torch.tensor(task.counters, dtype=torch.int64)
        work = LocalWork(
            task=task,
            binding=self.binding,
            rows=rows,
            counters=counters,
            context=self.context,
        )
        loss = self.trainer.train(work)

        # In this order: coding the upload updates rows that are kept, such as the residual of error feedback.
        upload = self._upload(rows)
        self._store(rows)
        report = Report(
            tag=task.tag,
            loss=loss,
            counters=counters.tolist(),
        )
        return report_record(report, upload)

    @property
    def _slots(self) -> tuple[Slot, ...]:
        """All that is kept beside the client's row, the anchor and the rows that the local rule is sent."""
        slots = list(self.trainer.slots)
        uplink = self.uplink
        if uplink is not None:
            slots += uplink.slots
            if uplink.codec.wants_warm:
                last_change = Slot(LAST_CHANGE)
                slots.append(last_change)
        return tuple(slots)

    @property
    def _outliving(self) -> list[str]:
        """The slots that outlive a window."""
        names: list[str] = []
        for slot in self._slots:
            if slot.lifetime == "run":
                names.append(slot.name)
        return names

    def _enter(self, sent: Packed) -> Rows:
        """The rows of a client that is sent the whole model."""
        task = self.task
        width = self.layout.width
        anchor = torch.zeros(width)
        slices = self.layout.slices_with_statistics(task.sent)
        read_plain(sent, anchor, slices)
        rows = {
            ANCHOR: anchor,
            ROW: anchor.clone(),
        }
        for name in self.trainer.sends:
            rows[name] = torch.zeros(width)
        for slot in self._slots:
            rows[slot.name] = torch.zeros(width)

        # Some slots go on from the client's last window, however long ago that was.
        outliving = self._outliving
        if not outliving:
            return rows
        earlier = load_outliving(
            self.context,
            task.run,
            task.client,
            width,
            window=task.window,
        )
        for name in outliving:
            if name in earlier.rows:
                rows[name] = earlier.rows[name]
        return rows

    def _overlay(self, rows: Rows, sent: Packed) -> None:
        """Write what was averaged last over the client's own numbers."""
        task = self.task
        slices = self.layout.slices_with_statistics(task.sent)
        anchor = rows[ANCHOR]
        before = anchor.clone()
        if self.downlink is None:
            read_plain(sent, anchor, slices)
        else:
            assert task.sent_place is not None, "a coded download comes with its place"
            place = place_from_plain(task.sent_place)
            decoded = self.downlink.unpack(
                sent.content,
                task.sent,
                place,
                anchor=before,
            )
            for part in slices:
                torch.add(before[part], decoded.row[part], out=anchor[part])

        row = rows[ROW]
        for part in slices:
            row[part] = anchor[part]

        if LAST_CHANGE in rows:
            last_change = rows[LAST_CHANGE]
            for part in self.layout.slices_of(task.sent):
                last_change[part] = anchor[part] - before[part]

    def _read_rule_rows(self, rows: Rows, content: bytes) -> None:
        """What the local rule was sent beside the layers."""
        names = self.trainer.sends
        if not names:
            return
        rule_rows = [rows[name] for name in names]
        slices = self.layout.slices_of(self.task.sent)
        read_rule_rows(content, rule_rows, slices)

    def _upload(self, rows: Rows) -> Packed:
        row = rows[ROW]
        slices = self.layout.slices_with_statistics(self.task.due)

        # No code can hold what is not finite; the server will refuse it by its name.
        if self.uplink is None or not _is_finite(row, slices):
            return pack_plain(row, slices)
        content = self._coded(self.uplink, rows)
        return Packed(CODED, content)

    def _coded(self, channel: Channel, rows: Rows) -> bytes:
        anchor = rows[ANCHOR]
        place = place_from_plain(self.task.place)
        own: Rows = {}
        for slot in channel.slots:
            own[slot.name] = rows[slot.name]
        return channel.pack(
            rows[ROW] - anchor,
            self.task.due,
            place,
            anchor=anchor,
            own=own,
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
            rows=self._kept(rows),
        )
        if task.keep == "everything":
            store_state(context, task.client, state)
            return

        forget_state(context, task.client, task.run)
        if task.keep == "nothing":
            forget_state(context, task.client, task.run, part="run")
            return

        if state.rows:
            store_state(context, task.client, state, part="run")

    def _kept(self, rows: Rows) -> Rows:
        """Those of the rows that the task says to keep."""
        if self.task.keep == "everything":
            return rows
        if self.task.keep == "nothing":
            return {}
        return {name: rows[name] for name in self._outliving}


def _is_finite(row: Tensor, slices: Sequence[slice]) -> bool:
    finite = [bool(row[part].isfinite().all()) for part in slices]
    return all(finite)
