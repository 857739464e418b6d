"""The data set that stands for the paper's, and what is known of it: from the data, or from runs that are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlama.base import InputError
from fedlama.paper import recipe
from fedlama.paper.recipe import Scale
from fedlama.run.directory import CONFIG
from fedlama.run.partition_file import PARTITION, read_partition
from fedlama.run.resolve import load_data
from fedlama.run.toml import read_toml
from fedlama.study.index import StudyIndex, read_index

# The folder of a group's study below those of all, if it has the data of this name
FolderWith = Callable[[str], str]


@dataclass(frozen=True)
class Source:
    """A data set and what there is to say of it.

    Arguments:
        name: What `load` takes.
        samples: How many training samples there are; None: not known, or nobody asks.
        writers: How many wrote them; None: not known, or none did.
    """

    name: str
    samples: int | None = None
    writers: int | None = None

    def part_of(self, common: Scale) -> str | None:
        """What to say of a set of which only some training samples are there.

        Arguments:
            common: What is known of the whole set.
        """
        if common.samples is None or self.samples in (None, common.samples):
            return None
        return f"{self.samples:,} of the {common.samples:,} training samples"


def source_there(common: Scale) -> Source:
    """The first of the data sets that is there, with what its samples tell.

    Arguments:
        common: Names them.
    """
    name = common.source()
    if name not in recipe.present():
        return Source(name)
    if common.samples is None and not common.by_writer:
        return Source(name)

    return _counted(name, by_writer=common.by_writer)


def _counted(name: str, *, by_writer: bool) -> Source:
    data = load_data(name)
    writers = None
    if by_writer and data.clients is not None:
        writers = len(data.clients.unique())
    return Source(name, len(data.x_train), writers)


def source_kept(common: Scale, home: Path, folder_with: FolderWith) -> Source:
    """That of the runs in a folder, as their files tell it: the data itself is not needed.

    Arguments:
        common: Names the data sets.
        home: The folder of all studies.
        folder_with: The folder of this group's below it, for each of them.
    """
    for name in common.sources:
        folder = home / folder_with(name)
        try:
            index = read_index(folder)
        except InputError:
            # Damaged; it is written anew.
            continue
        if index is not None:
            return _recorded(name, folder, index, by_writer=common.by_writer)
    return Source(common.source())


def _recorded(name: str, folder: Path, index: StudyIndex, *, by_writer: bool) -> Source:
    """As the runs of a study tell it: any of them will do."""
    runs = [folder / label for label in index.labels]
    samples = index.samples.get(name)
    if samples is None:
        samples = _recorded_samples(runs)
    writers = None
    if by_writer:
        writers = _recorded_writers(runs)
    return Source(name, samples, writers)


def _recorded_samples(runs: Sequence[Path]) -> int | None:
    for run in runs:
        file = run / PARTITION
        if not file.is_file():
            continue
        partition = read_partition(file)
        if partition is not None:
            return partition.samples
    return None


def _recorded_writers(runs: Sequence[Path]) -> int | None:
    for run in runs:
        file = run / CONFIG
        if not file.is_file():
            continue
        tables = read_toml(file)
        writers = tables["partition"].get("clients")
        if writers is not None:
            return writers
    return None
