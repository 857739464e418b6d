"""TensorBoard scalars, where the extra `fedlama[tensorboard]` is installed."""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedlama.run.files import writing
from fedlama.training import LayerSummary, Record, Result


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
    def _writer(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter  # slow to import, so only here

        return SummaryWriter(str(self.folder))  # makes the folder, so only with the first record

    def __call__(self, record: Record) -> None:
        """Loss, accuracy, cost and bytes of a round."""
        scalars = {
            "loss/training": record.loss,
            "loss/test": record.test_loss,
            "accuracy/test": record.accuracy,
            "communication/cost": record.cost,
            "communication/uplink_bytes": record.uplink_bytes,
            "communication/downlink_bytes": record.downlink_bytes,
        }
        self._write(scalars, record.step)

    def finish(self, result: Result, clients: int) -> None:
        """What each layer sent over the whole run as coded: bytes, and bits per number of one client's message.

        Arguments:
            result: The finished run.
            clients: How many clients train at a time.
        """
        scalars: dict[str, float | None] = {}
        for layer in result.layers:
            scalars[f"layers/uplink_bytes/{layer.name}"] = layer.uplink_bytes
            scalars[f"layers/bits_per_number/{layer.name}"] = bits_per_number(layer, clients)
        self._write(scalars, result.iterations)

    def _write(self, scalars: dict[str, float | None], step: int) -> None:
        with writing(self.folder):
            for name, value in scalars.items():
                if value is not None:
                    self._writer.add_scalar(name, value, step)
            self._writer.flush()


def bits_per_number(layer: LayerSummary, clients: int) -> float | None:
    """The rate at which a layer was sent: 32 where nothing is coded and nobody fails."""
    if layer.uplink_bytes is None or not layer.aggregations:
        return None
    return 8 * layer.uplink_bytes / (clients * layer.size * layer.aggregations)
