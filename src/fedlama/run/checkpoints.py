"""Checkpoints on disk: a safetensors file with the run's state, and a JSON file with its hash and where it belongs.

Both are written to another name, synced and renamed, the JSON last: a checkpoint without it is not there. The last two
are kept, so that one that turns out to be broken has a predecessor. The state may be larger than memory: it is written
and hashed piece by piece.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.base import (
    InputError,
    check_whole,
    open_regular,
    printable,
    read_regular,
    reason,
    shown,
)
from fedlama.run.config import as_written_today
from fedlama.run.files import PARTIAL, AtomicFile, write_atomically, writing

KEPT = 2
MAX_MANIFEST = 16 << 20  # bytes
MAX_CONTENT = 16 << 40  # it is never in memory as a whole, but it takes time to read
# How a run is kept and watched, which changes none of its numbers: a run may go on with others.
OPERATION = ("train.checkpoint_minutes", "output.tensorboard")
MAX_NAMED = 8  # keys in a sentence
MAX_KEY = 100  # characters
# What reading a file that someone damaged may raise, from the disk to a missing key
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Found:
    """The newest usable checkpoint of a run, and for each newer one why it was refused."""

    path: Path  # the file with the run's state
    round: int
    refused: list[str]


def save_checkpoint(
    folder: Path,
    content: bytes,
    *,
    step: int,
    round: int,
    config: Mapping[str, Any],
    records: Sequence[bytes] = (),
) -> None:
    """Write a checkpoint, and drop all but the last two.

    Arguments:
        folder: where checkpoints are kept; it is made if it is not there.
        content: the run's state, as safetensors.
        step: how many steps the run has taken.
        round: how many rounds it has recorded.
        config: the configuration, which a run that goes on from here must have.
        records: the lines of rounds.jsonl; their hash goes with the checkpoint, so that it continues no other rounds.
    """
    writer = CheckpointWriter(
        folder,
        step=step,
        round=round,
        config=config,
        records=records,
    )
    writer.save(content)


class CheckpointWriter:
    """A checkpoint that is written piece by piece; the arguments are those of `save_checkpoint`."""

    def __init__(
        self,
        folder: Path,
        *,
        step: int,
        round: int,
        config: Mapping[str, Any],
        records: Sequence[bytes] = (),
    ) -> None:
        self._folder = folder
        self._manifest: dict[str, Any] = {
            "step": step,
            "round": round,
            "config": config,
            "records": _hash_of_records(records[:round]),
        }
        self._name = f"step-{step:09d}"
        self._hash = hashlib.sha256()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # First, because its room may be needed.
            _drop_unfinished(folder)
        self._file = AtomicFile(folder / f"{self._name}.safetensors")

    def write(self, piece: bytes) -> None:
        """Add to the run's state.

        Arguments:
            piece: The next bytes.
        """
        self._file.write(piece)
        self._hash.update(piece)

    def finish(self) -> None:
        """The state is whole: keep it, and drop all but the last two checkpoints."""
        self._file.finish()
        manifest = {"sha256": self._hash.hexdigest(), **self._manifest}
        manifest["checksum"] = _checksum(manifest)
        text = json.dumps(manifest, indent=2)
        # Last: without it, the checkpoint is not there.
        write_atomically(self._folder / f"{self._name}.json", text + "\n")
        _drop_old(self._folder)

    def save(self, content: bytes) -> None:
        """Write and keep a state that is in memory.

        Arguments:
            content: All of it.
        """
        try:
            self.write(content)
            self.finish()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Leave nothing of it; the checkpoints before it stay."""
        self._file.discard()


def _drop_old(folder: Path) -> None:
    manifests = sorted(folder.glob("step-*.json"))
    for old in manifests[:-KEPT]:
        # The manifest first, because nobody reads a checkpoint without one.
        old.unlink()
        content = old.with_suffix(".safetensors")
        content.unlink(missing_ok=True)


def _drop_unfinished(folder: Path) -> None:
    """Delete what a run that was killed while it saved has left: it may be large, and nobody would read it."""
    for left in folder.glob(f"step-*{PARTIAL}"):
        left.unlink(missing_ok=True)
    for left in folder.glob("step-*.safetensors"):
        manifest = left.with_suffix(".json")
        if not manifest.exists():
            left.unlink(missing_ok=True)


def find_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    records: Sequence[bytes] | None = None,
    round_of: Callable[[Path], int] | None = None,
) -> Found | None:
    """The newest checkpoint that a run can go on from; None if there is no checkpoint.

    Arguments:
        folder: where checkpoints are kept.
        config: the configuration that it must be of.
        records: the lines of rounds.jsonl that it must continue (default: any).
        round_of: the round that a file with a run's state is of; raises InputError for one that the run cannot go on
            from (default: the state is not looked at).
    """
    refused: list[str] = []
    newest_first = sorted(folder.glob("step-*.json"), reverse=True)
    for path in newest_first:
        try:
            weights, manifest = _load(path)
            _check_same_config(path, manifest["config"], config)
            if records is not None:
                _check_records(path, manifest, records)
            if round_of is not None:
                _check_content(path, weights, manifest["round"], round_of)
        except InputError as error:
            refused.append(str(error))
            continue
        return Found(weights, manifest["round"], refused)

    if refused:
        raise InputError(f"{refused[0]}; there is no other checkpoint to continue from")
    return None


def _load(path: Path) -> tuple[Path, dict[str, Any]]:
    """A checkpoint that is whole: the file with its state, and the JSON beside it."""
    weights = path.with_suffix(".safetensors")
    try:
        text = read_regular(path, MAX_MANIFEST, "the JSON beside a checkpoint")
        manifest = json.loads(text)
        checksum = manifest.pop("checksum")
        is_whole = checksum == _checksum(manifest)
        is_whole = is_whole and manifest["sha256"] == _sha256_of_file(weights)
        if is_whole:
            check_whole("its round", manifest["round"], minimum=0)
            dict(manifest["config"])
    except DAMAGE as error:
        raise InputError(f"the checkpoint {path} is broken ({reason(error)})") from None

    if not is_whole:
        raise InputError(
            f"the checkpoint {path} is broken: its bytes are not those that were saved"
        )
    return weights, manifest


def _check_same_config(
    path: Path, saved: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    try:
        different = changed_keys(saved, config)
    except RecursionError:
        raise InputError(
            f"the checkpoint {path} is broken: its configuration has tables without end"
        ) from None
    if not different:
        return

    kind = "configuration"
    if all(key.startswith("versions.") for key in different):
        kind = "version"
    keys = ", ".join(different)
    raise InputError(f"the checkpoint {path} is of another {kind}: {keys}")


def _check_content(
    path: Path, weights: Path, round_: int, round_of: Callable[[Path], int]
) -> None:
    try:
        found = round_of(weights)
    except InputError as error:
        raise InputError(f"the checkpoint {path} cannot be used: {error}") from None
    if found != round_:
        raise InputError(
            f"the checkpoint {path} cannot be used: it is of round {found:,}, not {round_:,}"
        )


def _check_records(
    path: Path, manifest: Mapping[str, Any], records: Sequence[bytes]
) -> None:
    count = manifest["round"]
    if count > len(records):
        raise InputError(
            f"the checkpoint {path} is of round {count}, but rounds.jsonl has only {len(records)}"
        )
    if "records" not in manifest:  # of an earlier version
        return
    if manifest["records"] != _hash_of_records(records[:count]):
        raise InputError(
            f"the checkpoint {path} follows on other rounds than those that rounds.jsonl has now"
        )


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two configurations, as `key (was …, is …)`; they may be of earlier versions.

    How a run is operated makes no difference.
    """
    old = _flat(as_written_today(before))
    new = _flat(as_written_today(now))
    different: list[str] = []
    for key in sorted({*old, *new}):
        # Runs of earlier versions do not have it.
        if key == "data.sha256" and key not in old:
            continue
        # Code that changed is reported, and does not stop a run from going on.
        if key.startswith("hashes."):
            continue
        if key in OPERATION:
            continue

        was = old.get(key, "not set")
        is_now = new.get(key, "not set")
        if was != is_now:
            name = printable(key, MAX_KEY)
            different.append(f"{name} (was {shown(was)}, is {shown(is_now)})")

    more = len(different) - MAX_NAMED
    if more <= 0:
        return different
    return [*different[:MAX_NAMED], f"and {more} more"]


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables within tables as one, with keys such as `policy.kind`."""
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            inner = _flat(value, f"{path}.")
            flat.update(inner)
        else:
            flat[path] = value
    return flat


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sha256_of_file(path: Path) -> str:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_CONTENT:
            raise InputError(f"it has {size:,} bytes")
        # Piece by piece
        digest = hashlib.file_digest(file, "sha256")
    return digest.hexdigest()


def _hash_of_records(records: Sequence[bytes]) -> str:
    lines = b"\n".join(records)
    return _sha256(lines)


def _checksum(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True)
    return _sha256(text.encode())
