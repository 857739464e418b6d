"""The newest checkpoint that a run can go on from: whole, of the same configuration, after the same rounds."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.base import InputError, check_whole, open_regular, read_regular, reason
from fedlama.run.changed_keys import changed_keys
from fedlama.run.checkpoints import checksum_of, hash_of_records

MAX_MANIFEST = 16 << 20  # bytes
MAX_CONTENT = 16 << 40  # it is never in memory as a whole, but it takes time to read
# What reading a file that someone damaged may raise, from the disk to a missing key
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Found:
    """The newest usable checkpoint of a run, and for each newer one why it was refused."""

    path: Path  # the file with the run's state
    round: int
    refused: list[str]


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
        run = folder.parent
        raise InputError(
            f"{refused[0]}; there is no other checkpoint to continue from: choose another folder, or delete {run}, to "
            f"start that run anew"
        )
    return None


def _load(path: Path) -> tuple[Path, dict[str, Any]]:
    """A checkpoint that is whole: the file with its state, and the JSON beside it."""
    weights = path.with_suffix(".safetensors")
    try:
        text = read_regular(path, MAX_MANIFEST, "the JSON beside a checkpoint")
        manifest = json.loads(text)
        checksum = manifest.pop("checksum")
        is_whole = checksum == checksum_of(manifest)
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
    if manifest["records"] != hash_of_records(records[:count]):
        raise InputError(
            f"the checkpoint {path} follows on other rounds than those that rounds.jsonl has now"
        )


def _sha256_of_file(path: Path) -> str:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_CONTENT:
            raise InputError(f"it has {size:,} bytes")
        # Piece by piece
        digest = hashlib.file_digest(file, "sha256")
    return digest.hexdigest()
