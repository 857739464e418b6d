"""partition.json: how the data fell on clients, so that nobody has to load the data again to show it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from fedlama.base import InputError, read_regular, reason
from fedlama.data import Dataset, Shards
from fedlama.data.shards import class_counts
from fedlama.run.sections import Section

PARTITION = "partition.json"
MAX_CLIENTS = 1024  # that are described one by one
MAX_FILE = 64 << 20  # bytes
SampleCount = Annotated[int, Field(ge=0, le=1 << 40)]


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
    clients: SampleCount
    samples: SampleCount
    names: list[str] | None
    counts: list[list[SampleCount]]

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
    if not path.exists():
        return None
    try:
        content = read_regular(path, MAX_FILE, "how the data fell on clients")
        found = PartitionFile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        raise InputError(f"{path} is not one of a run ({first['msg']})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from None

    widths = {len(row) for row in found.counts}
    are_too_many = len(found.counts) > found.clients
    all_have_samples = all(map(any, found.counts))
    if len(widths) != 1 or are_too_many or not all_have_samples:
        raise InputError(
            f"{path} is not one of a run: each client needs a row of counts, with a sample in it"
        )
    if found.names is not None and len(found.names) != len(found.counts):
        raise InputError(
            f"{path} is not one of a run: there must be as many names as rows of counts"
        )
    return found
