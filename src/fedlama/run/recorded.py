"""A run as read back from its directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.base import InputError
from fedlama.run.config import Config, parse_config
from fedlama.run.directory import CONFIG, PACKED_ROUNDS, ROUNDS, SUMMARY
from fedlama.run.labels import run_label
from fedlama.run.partition_file import PARTITION, PartitionFile, read_partition
from fedlama.run.reading import read_packed_records, read_records, read_summary
from fedlama.run.toml import read_toml
from fedlama.training.records import ACCURACY, Measure, Record, Summary


@dataclass(frozen=True)
class RecordedRun:
    """A run as read back from its directory; `summary` is None while it is going."""

    path: Path
    config: Config
    tables: Mapping[
        str, Any
    ]  # the same as its file has it, to be shown as it was written
    records: list[Record]
    summary: Summary | None
    setting: str | None = None  # what a study calls it
    note: str | None = None  # what its study has to say of every number in it

    @property
    def label(self) -> str:
        """The setting's name: the study's, or what its configuration says."""
        if self.setting:
            return self.setting

        return run_label(self.config)

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.config.seed

    @property
    def measure(self) -> Measure:
        """What the run is judged by: its name, and which direction is better."""
        train = self.config.train
        name = train.metric_name or ACCURACY
        # A metric of the user's own without a word on it is one of which more is better.
        higher_is_better = train.higher_is_better is not False
        return Measure(name, higher_is_better)

    @property
    def partition(self) -> PartitionFile | None:
        """How the data fell on clients, if the run tells."""
        return read_partition(self.path / PARTITION)


def read_run(path: Path) -> RecordedRun:
    """Read a run directory, finished or not."""
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} is not a run directory: it has no {CONFIG}")
    tables = read_toml(path / CONFIG)
    return RecordedRun(
        path=path,
        config=parse_config(tables, str(path / CONFIG)),
        tables=tables,
        records=_records(path),
        summary=read_summary(path / SUMMARY),
    )


def _records(path: Path) -> list[Record]:
    """Of its rounds, packed or not; none where they are not kept."""
    plain = path / ROUNDS
    if plain.exists():
        return list(read_records(plain))
    return list(read_packed_records(path / PACKED_ROUNDS))


def check_same_network(path: Path, network: Sequence[tuple[str, int]]) -> None:
    """Refuse a finished run of another network: code of the user's own may build another one under the same name.

    Arguments:
        path: The run's directory.
        network: The name and the size of every layer now.
    """
    summary = read_summary(path / SUMMARY)
    if summary is None or summary.network == list(network):
        return

    layers_before = len(summary.network)
    before = sum(size for _, size in summary.network)
    now = sum(size for _, size in network)
    raise InputError(
        f"{path} holds a run of another network ({before:,} parameters in {layers_before} layers; the model now has "
        f"{now:,} in {len(network)}): choose another folder, or delete that one"
    )
