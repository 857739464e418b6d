"""partition.json: how the data fell on clients, so that nobody has to load the data again to show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import ValidationError

from fedlama.base import InputError, read_regular, reason
from fedlama.data import Dataset, Shards
from fedlama.data.partition import class_counts
from fedlama.run.sections import Section

PARTITION = "partition.json"
MAX_CLIENTS = 1024  # that are described one by one
MAX_FILE = 64 << 20  # bytes


class PartitionFile(Section):
    """Kept as `partition.json`.

    Arguments:
        data: What the data is called.
        clients: How many there are.
        samples: How many training samples there are.
        names: What the first clients are called, where the data has names for them.
        counts: For each of the first clients, how many samples of each class it has; data without classes has one.
    """

    data: str
    clients: int
    samples: int
    names: list[str] | None
    counts: list[list[int]]

    @staticmethod
    def of(data: Dataset, shards: Shards) -> PartitionFile:
        """What is to be kept of these shards."""
        names = None
        if shards.names is not None:
            names = list(shards.names[:MAX_CLIENTS])
        return PartitionFile(
            data=data.name,
            clients=len(shards),
            samples=len(shards.order),
            names=names,
            counts=class_counts(data, shards, MAX_CLIENTS).tolist(),
        )

    def to_json(self) -> str:
        """As the content of a file."""
        return self.model_dump_json() + "\n"


def read_partition(path: Path) -> PartitionFile | None:
    """What a run directory tells of its partition; None if it does not, as those of early versions."""
    if not path.is_file():
        return None
    try:
        found = PartitionFile.model_validate_json(read_regular(path, MAX_FILE, "how the data fell on clients"))
        rows = np.asarray(found.counts, dtype=np.int64)
    except (OSError, ValueError, ValidationError) as error:
        raise InputError(f"{path} is not one of a run ({reason(error)})") from None
    if rows.ndim != 2 or not rows.size or rows.min() < 0 or len(rows) > found.clients:
        raise InputError(f"{path} is not one of a run: counts must be a row of numbers for each client")
    return found
