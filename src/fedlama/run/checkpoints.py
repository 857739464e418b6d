"""Checkpoints on disk: a safetensors file with the run's state, and a JSON file with its hash and where it belongs.

Both are written to another name, synced and renamed, the JSON last: a checkpoint without it is not there. The last two
are kept, so that one that turns out to be broken has a predecessor. The state may be larger than memory: it is written
and hashed piece by piece.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlama.run.files import PARTIAL, AtomicFile, write_atomically, writing

KEPT = 2


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
            "records": hash_of_records(records[:round]),
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
        digest = self._hash.hexdigest()
        manifest = {"sha256": digest, **self._manifest}
        manifest["checksum"] = checksum_of(manifest)
        text = json.dumps(manifest, indent=2)
        path = self._folder / f"{self._name}.json"
        # Last: without it, the checkpoint is not there.
        write_atomically(path, text + "\n")
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


def _sha256(content: bytes) -> str:
    digest = hashlib.sha256(content)
    return digest.hexdigest()


def hash_of_records(records: Sequence[bytes]) -> str:
    """What says which rounds a checkpoint continues.

    Arguments:
        records: The lines of rounds.jsonl up to it.
    """
    lines = b"\n".join(records)
    return _sha256(lines)


def checksum_of(manifest: Mapping[str, Any]) -> str:
    """What says whether the JSON beside a checkpoint is as it was written.

    Arguments:
        manifest: Its content, without the checksum.
    """
    text = json.dumps(manifest, sort_keys=True)
    return _sha256(text.encode())
