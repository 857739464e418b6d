"""A run on disk: what it was, every round as it happened, and what came of it.

config.toml     the resolved configuration, with versions
rounds.jsonl    one record a round
timings.jsonl   all that varies from run to run
summary.json    the result
checkpoint/     the global model as safetensors
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors.torch import save

from fedlama.base import InputError
from fedlama.core import PolicyState
from fedlama.run.checkpoints import changed_keys, save_checkpoint
from fedlama.run.config import Config, parse_config, read_toml
from fedlama.run.files import append_line, write_atomically, writing
from fedlama.run.shapes import RecordShape, SummaryShape, TimingShape, check_shape
from fedlama.training import Record, Result

FILES = ("config.toml", "rounds.jsonl", "timings.jsonl", "summary.json", "report.html", "report.png")
WEIGHTS = Path("checkpoint") / "model.safetensors"


class RunDirectory:
    """Written while a run is going; every record is on disk before the next round starts.

    Nothing is written before the first record or checkpoint: input that turns out to be wrong leaves no folder behind.
    """

    def __init__(self, path: Path, config: Config, *, replace: bool = False, resume: bool = False) -> None:
        """A directory that holds a run already is refused, emptied of it with `replace`, or continued with `resume`."""
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file; a run needs a folder: choose another --out")
        for name in () if replace or resume else FILES:
            if (path / name).exists():
                held = "a run (--resume continues it)" if (path / "config.toml").exists() else f"a {name}"
                raise InputError(f"{path} already holds {held}: choose another --out, or delete that folder first")
        self.path, self.config = path, config
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
        if not self._open:
            self.begin()
        seconds = round(time.perf_counter() - self._started, 4)
        append_line(self.path / "rounds.jsonl", json.dumps(asdict(record), allow_nan=False))
        append_line(self.path / "timings.jsonl", json.dumps({"round": record.round, "seconds": seconds}))

    def begin(self) -> None:
        """Make the folder and write the configuration into it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            events = self.path.glob("tensorboard/events.out.tfevents.*")
            checkpoints = self.path.glob("checkpoint/step-*")
            files = (self.path / name for name in FILES)
            for old in (*files, self.path / WEIGHTS, *events, *checkpoints):
                old.unlink(missing_ok=True)
            write_atomically(self.path / "config.toml", to_toml(self.config.model_dump(exclude_none=True)))
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written ({error.strerror})") from None
        self._open = True

    def recorded(self) -> list[bytes]:
        """The lines of the rounds on record, up to the first that cannot be read."""
        path, count = self.path / "rounds.jsonl", 0
        with suppress(InputError):
            for _ in _records(path):
                count += 1
        return path.read_bytes().split(b"\n")[:count] if count else []

    def continue_after(self, round_: int) -> list[Record]:
        """Drop what was recorded after this round, which will be recorded again; the records up to it."""
        records: list[Record] = []
        for name in ("rounds.jsonl", "timings.jsonl"):
            kept = list(islice(_records(self.path / name), round_))  # what comes after may be torn
            if len(kept) < round_ and name == "rounds.jsonl":
                raise InputError(f"{self.path / name} has {len(kept)} rounds, but the checkpoint is of round {round_}")
            records = [self._record(entry) for entry in kept] if name == "rounds.jsonl" else records
            write_atomically(self.path / name, "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in kept))
        self._open = True
        return records

    def _record(self, entry: Mapping[str, Any]) -> Record:
        try:
            return Record(**entry)
        except TypeError as error:
            raise InputError(f"{self.path / 'rounds.jsonl'} is not of this version: {error}") from None

    def is_finished(self) -> bool:
        """Whether this run, and not one of another configuration, has its summary."""
        if not (self.path / "summary.json").exists():
            return False
        self.check_same_config()
        return True

    def check_same_config(self) -> None:
        """Refuse to go on with a run of another configuration."""
        if (self.path / "config.toml").exists():
            different = changed_keys(read_toml(self.path / "config.toml"), self.config.model_dump(exclude_none=True))
            if different:
                raise InputError(f"{self.path} holds a run of another configuration: {', '.join(different)}")

    def save_checkpoint(self, content: bytes, state: PolicyState) -> None:
        """Keep a checkpoint, with the configuration it belongs to; the records up to it reach the disk before it."""
        with suppress(OSError), (self.path / "rounds.jsonl").open("rb") as records:
            os.fsync(records.fileno())
        if not self._open:  # a run may stop before its first record
            self.begin()
        save_checkpoint(
            self.path / "checkpoint",
            content,
            step=state.step,
            round=state.round,
            config=self.config.model_dump(exclude_none=True),
            records=self.recorded(),
        )

    def finish(self, result: Result) -> None:
        """Write the model and, last of all, the summary: a run with a summary is a finished one."""
        weights = self.path / WEIGHTS
        with writing(weights):
            weights.parent.mkdir(exist_ok=True)
        write_atomically(weights, save(_unshared(result.model.state_dict())))
        write_atomically(self.path / "summary.json", json.dumps(result.summary(), indent=2, allow_nan=False) + "\n")


@dataclass(frozen=True)
class Run:
    """A run as read back from its directory; `summary` is None while it is going."""

    path: Path
    config: Mapping[str, Any]
    records: list[dict[str, Any]]
    summary: dict[str, Any] | None
    setting: str | None = None  # what a study calls it

    @property
    def label(self) -> str:
        """The setting's name: the study's, or the policy."""
        return self.setting or str(parse_config(self.config, str(self.path / "config.toml")).policy.build())

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config.get("seed", 0))


def read_run(path: Path) -> Run:
    """Read a run directory, finished or not."""
    if not (path / "config.toml").is_file():
        raise InputError(f"{path} is not a run directory: it has no config.toml")
    summary = None
    if (path / "summary.json").exists():
        summary = _json(path / "summary.json")
        check_shape(SummaryShape, summary, str(path / "summary.json"))
    records = list(_records(path / "rounds.jsonl"))
    return Run(path, read_toml(path / "config.toml"), records, summary)


def to_toml(tables: Mapping[str, Any]) -> str:
    """Tables of plain values as TOML: scalars first, then one table a section."""
    scalars = [f"{key} = {_toml_value(value)}" for key, value in tables.items() if not isinstance(value, Mapping)]
    sections = [
        "\n".join([f"[{key}]", *(f"{_toml_key(name)} = {_toml_value(inner)}" for name, inner in value.items())])
        for key, value in tables.items()
        if isinstance(value, Mapping) and value
    ]
    return "\n\n".join(["\n".join(scalars), *sections]) + "\n"


def _toml_key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    quoted = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else None
    text = quoted or repr(value)
    assert tomllib.loads(f"value = {text}")["value"] == value
    return text


def _unshared(state: Mapping[str, Any]) -> dict[str, Any]:
    """safetensors refuses tensors that share memory, as tied weights do: give each its own."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}


def _json(path: Path) -> Any:
    try:
        return _text_only(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not readable JSON ({error})") from None


def _text_only(entry: Any) -> Any:
    """JSON can spell half a surrogate pair, which is no text and cannot be shown: a ValueError."""
    json.dumps(entry, ensure_ascii=False).encode("utf-8")
    return entry


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Complete lines only: a run that is going, or was killed, may have half a line at its end."""
    if not path.exists():
        return
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    shape = RecordShape if path.name == "rounds.jsonl" else TimingShape
    for number, line in enumerate(lines[:-1], start=1):
        try:
            entry = _text_only(json.loads(line.decode("utf-8")))
        except (ValueError, RecursionError):
            raise InputError(f"{path}: line {number} is not JSON") from None
        check_shape(shape, entry, f"{path}: line {number}")
        yield entry
