"""Where data sets are looked for, and where archives are put."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fedlama.base import InputError, expand_home, printable

SYSTEM_FOLDER = Path("/usr/share/datasets")  # Debian's dataset-* packages


def data_folder() -> Path:
    """Where `fetch` puts archives: the folder in FEDLAMA_DATA, or else the user's cache."""
    for folder in _own_folders():
        return folder
    raise InputError(
        "there is no home folder to keep data in: set FEDLAMA_DATA to a folder"
    )


def data_folders() -> Iterator[Path]:
    """Where sets are looked for, the first place first."""
    yield from _own_folders()
    yield SYSTEM_FOLDER


def _own_folders() -> Iterator[Path]:
    """Those of the user, the first place first."""
    named = os.environ.get("FEDLAMA_DATA")
    if named:
        yield expand_home(named)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        yield expand_home(cache) / "fedlama"
    except InputError:
        # In a container there may be neither HOME nor a user of this number: then there is no cache to look into.
        return


def described_folders() -> str:
    """The same as part of a sentence; those that do not exist are marked."""
    described: list[str] = []
    for root in data_folders():
        text = printable(root)
        if not root.is_dir():
            text += " (no such folder)"
        described.append(text)
    *others, last = described
    if not others:
        return last
    listed = ", ".join(others)
    return f"{listed} and {last}"
