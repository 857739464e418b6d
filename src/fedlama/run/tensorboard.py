"""TensorBoard scalars, where the extra `fedlama[tensorboard]` is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedlama.run.files import writing
from fedlama.training import Record


def tensorboard_writer(out: Path) -> Callable[[Record], None] | None:
    """An observer that writes scalars below `out`/tensorboard, or None where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        return None

    @cache
    def open_writer() -> Any:
        from torch.utils.tensorboard import SummaryWriter  # slow to import, so only here

        return SummaryWriter(str(out / "tensorboard"))  # makes the folder, so only with the first record

    def write(record: Record) -> None:
        with writing(out / "tensorboard"):
            add(record, open_writer())

    def add(record: Record, writer: Any) -> None:
        scalars = {
            "loss/training": record.loss,
            "loss/test": record.test_loss,
            "accuracy/test": record.accuracy,
            "communication/cost": record.cost,
            "communication/uplink_bytes": record.uplink_bytes,
        }
        for name, value in scalars.items():
            if value is not None:
                writer.add_scalar(name, value, record.step)
        writer.flush()

    return write
