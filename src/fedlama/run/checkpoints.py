"""Checkpoints on disk: a safetensors file with the run's state and a JSON file that vouches for it.

Both are written to another name, synced and renamed, the JSON last: a checkpoint without it is not there. The last two
are kept, so that one that turns out to be broken has a predecessor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.base import InputError
from fedlama.run.config import as_written_today
from fedlama.run.files import write_atomically, writing

KEPT = 2


@dataclass(frozen=True)
class Found:
    """The newest usable checkpoint of a run, and a sentence for each newer one that was refused."""

    content: bytes
    round: int
    refused: list[str]


def save_checkpoint(
    folder: Path, content: bytes, *, step: int, round: int, config: Mapping[str, Any], records: Sequence[bytes] = ()
) -> None:
    """Write a checkpoint, which also vouches for the records of the rounds before it, and drop all but the last two."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    name = f"step-{step:09d}"
    write_atomically(folder / f"{name}.safetensors", content)
    voucher = {"sha256": hashlib.sha256(content).hexdigest(), "step": step, "round": round, "config": config}
    voucher["records"] = _digest(records[:round])
    voucher["checksum"] = _checksum(voucher)
    write_atomically(folder / f"{name}.json", json.dumps(voucher, indent=2) + "\n")
    for old in sorted(folder.glob("step-*.json"))[:-KEPT]:
        old.unlink()
        old.with_suffix(".safetensors").unlink(missing_ok=True)


def find_checkpoint(folder: Path, config: Mapping[str, Any], records: Sequence[bytes] | None = None) -> Found | None:
    """The newest checkpoint of this configuration that is whole and follows on these records; None if none is."""
    refused: list[str] = []
    for path in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            content, voucher = _load(path, config)
            if records is not None:
                _check_recorded(path, voucher, records)
        except InputError as error:
            refused.append(str(error))
            continue
        return Found(content, voucher["round"], refused)
    if refused:
        raise InputError(f"{refused[0]}; there is no other checkpoint to continue from")
    return None


def _check_recorded(path: Path, voucher: Mapping[str, Any], records: Sequence[bytes]) -> None:
    round_ = voucher["round"]
    if round_ > len(records):
        raise InputError(f"the checkpoint {path} is of round {round_}, but rounds.jsonl has only {len(records)}")
    if voucher.get("records", _digest(records[:round_])) != _digest(records[:round_]):  # older ones have none
        raise InputError(f"the checkpoint {path} follows on other rounds than those that rounds.jsonl has now")


def _digest(records: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\n".join(records)).hexdigest()


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two configurations, as `key (was …, is …)`; they may be of earlier versions."""
    old = _flat(as_written_today(before))
    new = _flat(as_written_today(now))
    return [
        f"{key} (was {old.get(key, 'not set')!r}, is {new.get(key, 'not set')!r})"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key) and (key in old or key != "data.sha256")  # which older runs do not have
    ]


def _load(path: Path, config: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """A checkpoint and what vouches for it."""
    try:
        voucher = json.loads(path.read_text(encoding="utf-8"))
        whole = voucher.pop("checksum") == _checksum(voucher)
        content = path.with_suffix(".safetensors").read_bytes()
        intact = whole and "round" in voucher and voucher["sha256"] == hashlib.sha256(content).hexdigest()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"the checkpoint {path} is broken ({error})") from None
    if not intact:
        raise InputError(f"the checkpoint {path} is broken: its bytes are not those that were saved")
    _check_same(path, voucher["config"], config)
    return content, voucher


def _check_same(path: Path, saved: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    different = changed_keys(saved, config)
    if different:
        kind = "version" if all(key.startswith("versions.") for key in different) else "configuration"
        raise InputError(f"the checkpoint {path} is of another {kind}: {', '.join(different)}")


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _checksum(voucher: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(voucher, sort_keys=True).encode()).hexdigest()
