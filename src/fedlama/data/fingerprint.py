"""Which data it was: one SHA-256 over the contents of all files of a set, wherever they lie."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedlama.core import InputError
from fedlama.data.catalog import data_files


def fingerprint(name: str) -> str | None:
    """The SHA-256 of the set's file; of several, that of their hashes a line. None for the embedded digits."""
    hashes = [file_hash(path) for path in data_files(name)]
    if len(hashes) <= 1:
        return hashes[0] if hashes else None
    return hashlib.sha256("".join(f"{one}\n" for one in hashes).encode()).hexdigest()


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
