"""Checkpoints on disk: a safetensors file with the run's state and a JSON file that vouches for it.

Both are written to another name, synced and renamed, the JSON last: a checkpoint without it is not there. The last two
are kept, so that one that turns out to be broken has a predecessor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlama.base import InputError, check_whole, printable, read_regular, reason, shown
from fedlama.run.config import as_written_today
from fedlama.run.files import write_atomically, writing

KEPT = 2
MAX_VOUCHER = 16 << 20  # bytes
MAX_CONTENT = 64 << 30
MAX_NAMED = 8  # keys in a sentence
MAX_KEY = 100  # characters


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


def find_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    records: Sequence[bytes] | None = None,
    round_of: Callable[[bytes], int] | None = None,
) -> Found | None:
    """The newest checkpoint that a run can go on from; None if there is none at all.

    Arguments:
        folder: where checkpoints are.
        config: the run's; one of another configuration is refused.
        records: the lines of the rounds on record, which the checkpoint must follow on.
        round_of: the round that a checkpoint's content is of; raises InputError for one that the run cannot go on from.
    """
    refused: list[str] = []
    for path in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            content, voucher = _load(path, config)
            if records is not None:
                _check_recorded(path, voucher, records)
            if round_of is not None:
                _check_content(path, content, voucher["round"], round_of)
        except InputError as error:
            refused.append(str(error))
            continue
        return Found(content, voucher["round"], refused)
    if refused:
        raise InputError(f"{refused[0]}; there is no other checkpoint to continue from")
    return None


def _check_content(path: Path, content: bytes, round_: int, round_of: Callable[[bytes], int]) -> None:
    try:
        found = round_of(content)
    except InputError as error:
        raise InputError(f"the checkpoint {path} cannot be used: {error}") from None
    if found != round_:
        raise InputError(f"the checkpoint {path} cannot be used: it is of round {found}, not {round_}")


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
    changed: list[str] = []
    for key in sorted({*old, *new}):
        if old.get(key) == new.get(key):
            continue
        if key == "data.sha256" and key not in old:  # older runs do not have it
            continue
        was = shown(old.get(key, "not set"))
        now_is = shown(new.get(key, "not set"))
        changed.append(f"{printable(key, MAX_KEY)} (was {was}, is {now_is})")
    if len(changed) <= MAX_NAMED:
        return changed
    return [*changed[:MAX_NAMED], f"and {len(changed) - MAX_NAMED} more"]


def _load(path: Path, config: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """A checkpoint and what vouches for it."""
    try:
        voucher = json.loads(read_regular(path, MAX_VOUCHER, "what vouches for a checkpoint"))
        whole = voucher.pop("checksum") == _checksum(voucher)
        content = read_regular(path.with_suffix(".safetensors"), MAX_CONTENT, "a checkpoint")
        intact = whole and voucher["sha256"] == hashlib.sha256(content).hexdigest()
        if intact:
            check_whole("its round", voucher["round"], least=0)
            _check_same(dict(voucher["config"]), config)
    except InputError as error:
        raise InputError(f"the checkpoint {path} cannot be used: {error}") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"the checkpoint {path} is broken ({reason(error)})") from None
    if not intact:
        raise InputError(f"the checkpoint {path} is broken: its bytes are not those that were saved")
    return content, voucher


def _check_same(saved: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    different = changed_keys(saved, config)
    if different:
        kind = "version" if all(key.startswith("versions.") for key in different) else "configuration"
        raise InputError(f"it is of another {kind}: {', '.join(different)}")


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _checksum(voucher: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(voucher, sort_keys=True).encode()).hexdigest()
