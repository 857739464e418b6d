"""TensorBoard scalars, where the extra `fedlama[tensorboard]` is installed.

The file is written here, record by record. TensorBoard's own writer does it in a thread, which prints a traceback when
the disk is full or the folder was removed.
"""

from __future__ import annotations

import os
import socket
import time
from functools import cached_property
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from fedlama.run.files import append, writing
from fedlama.training import Record, TrainingResult


def tensorboard_writer(out: Path) -> Board | None:
    """A board below `out`/tensorboard, or None where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        return None
    return Board(out / "tensorboard")


class Board:
    """Writes scalars; called with a record, it writes those of a round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def _events(self) -> EventFile:
        return EventFile(self.folder)  # makes the folder, so only with the first record

    def __call__(self, record: Record) -> None:
        """Loss, accuracy, cost and bytes of a round."""
        scalars = {
            "loss/training": record.loss,
            "loss/test": record.test_loss,
            "accuracy/test": record.accuracy,
            **{f"{name}/test": value for name, value in record.metrics.items()},
            "communication/cost": record.cost,
            "communication/uplink_bytes": record.uplink_bytes,
            "communication/downlink_bytes": record.downlink_bytes,
        }
        self._write(scalars, record.step)

    def finish(self, result: TrainingResult, clients: int) -> None:
        """What each layer sent over the whole run as coded: bytes, and bits per number of one client's message.

        Arguments:
            result: The finished run.
            clients: How many clients train at a time.
        """
        scalars: dict[str, float | None] = {}
        for layer in result.layers:
            uplink = f"layers/uplink_bytes/{layer.name}"
            bits = f"layers/bits_per_number/{layer.name}"
            scalars[uplink] = layer.uplink_bytes
            scalars[bits] = layer.bits_per_number(clients)

        self._write(scalars, result.iterations)

    def _write(self, scalars: dict[str, float | None], step: int) -> None:
        known: dict[str, float] = {}
        for name, value in scalars.items():
            # What was not measured in this round has no point in its chart.
            if value is not None:
                known[name] = value

        with writing(self.folder):
            self._events.add(known, step)


class EventFile:
    """A file of events in TensorBoard's format; what was added is on disk.

    Arguments:
        folder: Where it is made, under a name that no other has.
    """

    def __init__(self, folder: Path) -> None:
        # Slow to import, so only here
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        # Made by protobuf, without types
        events: Any = event_pb2
        summaries: Any = summary_pb2
        self._event: Any = events.Event
        self._summary: Any = summaries.Summary
        self._framed: Any = RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        now = f"{time.time():.6f}"
        host = socket.gethostname()
        self._path = folder / f"events.out.tfevents.{now}.{host}.{os.getpid()}"
        self._add(file_version="brain.Event:2")

    def add(self, scalars: dict[str, float], step: int) -> None:
        """Add the values of these scalars at a step."""
        values: list[Any] = []
        for name, value in scalars.items():
            scalar = self._summary.Value(tag=name, simple_value=value)
            values.append(scalar)

        summary = self._summary(value=values)
        self._add(step=step, summary=summary)

    def _add(self, **content: Any) -> None:
        event = self._event(wall_time=time.time(), **content)
        framed = BytesIO()
        writer = self._framed(framed)
        writer.write(event.SerializeToString())
        # At once and whole: a reader may look at the file at any time.
        append(self._path, framed.getvalue())
