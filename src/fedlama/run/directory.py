"""A run on disk: what it was, every round as it happened, and what came of it.

config.toml     the resolved configuration, with versions
partition.json  how the data fell on clients
rounds.jsonl    one record per round (published: packed, as rounds.jsonl.gz)
timings.jsonl   all that varies from run to run
summary.json    the result
checkpoint/     the global model as safetensors
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors.torch import save

from fedlama.base import InputError
from fedlama.core import PolicyState
from fedlama.run.changed_keys import changed_keys
from fedlama.run.checkpoints import CheckpointWriter
from fedlama.run.config import Config
from fedlama.run.files import (
    OUT_OPTION,
    Held,
    append_line,
    write_atomically,
    writing,
)
from fedlama.run.partition_file import PARTITION, PartitionFile
from fedlama.run.reading import last_seconds, read_records, timings_up_to
from fedlama.run.toml import read_toml, to_toml
from fedlama.training.records import Record, Timing, TrainingResult

CONFIG = "config.toml"
ROUNDS = "rounds.jsonl"
# What is published has them packed, and is only read
PACKED_ROUNDS = f"{ROUNDS}.gz"
TIMINGS = "timings.jsonl"
SUMMARY = "summary.json"
FILES = (CONFIG, PARTITION, ROUNDS, TIMINGS, SUMMARY, "report.html", "report.png")
CHECKPOINTS = "checkpoint"
# In [hashes]: of code that changed while the run was interrupted
UNTIL_ROUND = " until round "
WEIGHTS = Path(CHECKPOINTS) / "model.safetensors"


class RunDirectory:
    """Written while a run is going; every record is on disk before the next round starts.

    Nothing is written before the first record or checkpoint: input that turns out to be wrong leaves no folder behind.
    """

    def __init__(
        self,
        path: Path,
        config: Config,
        *,
        replace: bool = False,
        resume: bool = False,
        held: Held | None = None,
        partition: PartitionFile | None = None,
        option: str = OUT_OPTION,
    ) -> None:
        """A directory at `path` for a run of `config`, which is resolved.

        One that holds a run already is refused, emptied of it with `replace`, or continued with `resume`. If the
        folder is `held`, it is checked before each writing that it is still the same. `partition` says how the data
        fell on clients, `option` by what the user named the folder.
        """
        if path.exists() and not path.is_dir():
            raise InputError(
                f"{path} is a file; a run needs a folder: choose another {option}"
            )
        if not replace and not resume:
            _check_free(path, option)
        self.path = path
        self.config = config
        self._held = held
        self._partition = partition
        self._started = time.perf_counter()
        self._open = False

    @staticmethod
    def create(path: Path, config: Config, *, replace: bool = False) -> RunDirectory:
        """A new run directory, on disk at once."""
        directory = RunDirectory(path, config, replace=replace)
        directory.begin()
        return directory

    def record(self, record: Record) -> None:
        """Append one round."""
        self._check_held()
        if not self._open:
            self.begin()

        elapsed = time.perf_counter() - self._started
        line = json.dumps(record.to_plain(), allow_nan=False)
        append_line(self.path / ROUNDS, line)

        timing = Timing(round=record.round, seconds=round(elapsed, 4))
        line = json.dumps(asdict(timing))
        append_line(self.path / TIMINGS, line)

    def begin(self) -> None:
        """Make the folder, without what an earlier run left in it, and write the configuration into it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for old in self._left_behind():
                old.unlink(missing_ok=True)

            self._write_config(self._tables())
            if self._partition is not None:
                content = self._partition.to_json()
                write_atomically(self.path / PARTITION, content)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror})"
            ) from None

        self._open = True

    def _write_config(self, tables: Mapping[str, Any]) -> None:
        content = to_toml(tables)
        write_atomically(self.path / CONFIG, content)

    def _left_behind(self) -> Iterator[Path]:
        for name in (*FILES, WEIGHTS):
            yield self.path / name
        yield from self.path.glob("tensorboard/events.out.tfevents.*")
        yield from self.path.glob(f"{CHECKPOINTS}/step-*")

    def _check_held(self) -> None:
        if self._held is not None:
            self._held.check()

    def _tables(self) -> dict[str, Any]:
        return self.config.model_dump(exclude_none=True)

    def recorded(self) -> list[bytes]:
        """The lines of the rounds on record, up to the first that cannot be read."""
        path = self.path / ROUNDS
        count = 0
        with suppress(InputError):
            for _ in read_records(path):
                count += 1
        if not count:
            return []
        lines = path.read_bytes().split(b"\n")
        return lines[:count]

    def continue_after(self, round_: int) -> list[Record]:
        """Drop what was recorded after this round, which will be recorded again; the records up to it."""
        rounds = self.path / ROUNDS
        timings = self.path / TIMINGS
        # What comes after may be torn
        records = list(islice(read_records(rounds), round_))
        if len(records) < round_:
            raise InputError(
                f"{rounds} has {len(records)} rounds, but the checkpoint is of round {round_}"
            )

        if not (self.path / CONFIG).exists():
            # The checkpoint proved the configuration right; without the file, the finished run could not be read.
            self._write_config(self._tables())
        self._note_changed_code(round_)

        _keep_lines(rounds, len(records))
        kept = timings_up_to(timings, round_)
        write_atomically(timings, kept)
        # The time since the run was stopped is not the run's
        self._started -= last_seconds(timings)
        self._open = True
        return records

    def _note_changed_code(self, round_: int) -> None:
        """Keep the hash of code that changed beside that of the code which the run goes on with."""
        tables = read_toml(self.path / CONFIG)
        before: Any = tables.get("hashes")
        if not isinstance(before, dict):
            return

        now = self.config.hashes
        hashes = {name: one for name, one in before.items() if name not in now}
        has_changed = False
        for name, one in now.items():
            was = before.get(name, one)
            if was == one:
                continue
            has_changed = True
            # A second change before another round is on record: what is recorded is of the first code.
            hashes.setdefault(f"{name}{UNTIL_ROUND}{round_}", was)
        if not has_changed:
            return

        hashes.update(now)
        tables["hashes"] = hashes
        self._write_config(tables)

    def is_finished(self) -> bool:
        """Whether this run, and not one of another configuration, has its summary."""
        if not (self.path / SUMMARY).exists():
            return False
        self.check_same_config()
        return True

    def check_same_config(self) -> None:
        """Refuse to go on with a run of another configuration."""
        path = self.path / CONFIG
        if not path.exists():
            return
        before = read_toml(path)
        different = changed_keys(before, self._tables())
        if different:
            keys = ", ".join(different)
            raise InputError(
                f"{self.path} holds a run of another configuration: {keys}"
            )

    def begin_checkpoint(self, state: PolicyState) -> CheckpointWriter:
        """What writes a checkpoint, with the configuration it belongs to; the records up to it are on disk before it.

        Arguments:
            state: Where the policy stands.
        """
        self._check_held()
        with suppress(OSError), (self.path / ROUNDS).open("rb") as records:
            os.fsync(records.fileno())
        if not self._open:  # a run may stop before its first record
            self.begin()
        return CheckpointWriter(
            self.path / CHECKPOINTS,
            step=state.step,
            round=state.round,
            config=self._tables(),
            records=self.recorded(),
        )

    def finish(self, result: TrainingResult) -> None:
        """Write the model and, last of all, the summary: a run with a summary is a finished one."""
        self._check_held()
        weights = self.path / WEIGHTS
        with writing(weights):
            weights.parent.mkdir(exist_ok=True)
        tensors = _unshared(result.model.state_dict())
        write_atomically(weights, save(tensors))

        summary = json.dumps(
            result.summary(),
            indent=2,
            allow_nan=False,
        )
        write_atomically(self.path / SUMMARY, summary + "\n")


def _check_free(path: Path, option: str) -> None:
    """Refuse a folder that holds a run, or a part of one."""
    for name in FILES:
        if not (path / name).exists():
            continue
        held = f"a {name}"
        if (path / CONFIG).exists():
            held = "a run (--resume continues it)"
        raise InputError(
            f"{path} already holds {held}: choose another {option}, or delete that folder first"
        )


def _keep_lines(path: Path, count: int) -> None:
    """Drop all but the first lines of a file."""
    content = b""
    if count:
        lines = path.read_bytes().split(b"\n")
        content = b"\n".join(lines[:count]) + b"\n"

    write_atomically(path, content)


def _unshared(state: Mapping[str, Any]) -> dict[str, Any]:
    """safetensors refuses tensors that share memory, as tied weights do: give each its own."""
    copies: dict[str, Any] = {}
    for name, tensor in state.items():
        # `cpu` copies nothing that is there already, so `clone` does.
        copies[name] = tensor.detach().cpu().clone().contiguous()
    return copies
