"""Which data it was: one SHA-256 over the contents of all files of a set, wherever they lie."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedlama.base import InputError, open_regular, printable, reason
from fedlama.data.catalog import locate
from fedlama.data.known import KNOWN
from fedlama.data.leaf import leaf_files


def data_files(name: str) -> list[Path]:
    """The files that `load` reads, in its order; none for the embedded digits.

    Arguments:
        name: As for `load`.
    """
    path = locate(name)
    if path is None:
        return []
    if name in KNOWN:
        return KNOWN[name].used(path)
    if path.is_dir():
        return leaf_files(path)
    return [path]


def fingerprint(name: str) -> str | None:
    """The SHA-256 of the set's file; of several, that of their hashes, each on a line. None for the embedded digits.

    Arguments:
        name: As for `load`.
    """
    files = data_files(name)
    hashes = [file_hash(path) for path in files]
    if not hashes:
        return None
    if len(hashes) == 1:
        return hashes[0]

    lines = "".join(f"{one}\n" for one in hashes)
    digest = hashlib.sha256(lines.encode())
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        with open_regular(path) as file:
            digest = hashlib.file_digest(file, "sha256")
            return digest.hexdigest()
    except OSError as error:
        raise InputError(
            f"{printable(path)} cannot be read ({reason(error)})"
        ) from None
