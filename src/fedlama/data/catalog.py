"""Data sets by name: what there is, where it is looked for, and how to get it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from fedlama.base import InputError, expand_home, printable, reason, shown
from fedlama.data.dataset import Dataset
from fedlama.data.digits import digits
from fedlama.data.folders import data_folders, described_folders
from fedlama.data.known import KNOWN
from fedlama.data.leaf import is_leaf, read_leaf
from fedlama.data.npz import read_npz

MAX_LISTED = 30


@dataclass(frozen=True)
class Entry:
    """A data set of the catalog.

    Arguments:
        name: What `load` takes.
        what: What it is, in a line.
        present: Whether it is there.
        where: Its file or folder; None if it is missing, and for the embedded digits.
        how: How to get it.
    """

    name: str
    what: str
    present: bool
    where: Path | None
    how: str


def load(name: str) -> Dataset:
    """A data set, read from its files.

    Arguments:
        name: A name of the catalog, the name of a set in a data folder, or a path (of an .npz file or a LEAF folder).
    """
    name = os.fspath(name)
    path = locate(name)
    if path is None:
        return digits()
    try:
        if name in KNOWN:
            return KNOWN[name].read(path)
        if path.is_dir():
            return read_leaf(path)
        return read_npz(path)
    except OSError as error:
        raise InputError(
            f"{printable(name)} cannot be read: {reason(error)}"
        ) from error


def locate(name: str) -> Path | None:
    """The file or folder that `load` reads; None for the embedded digits.

    Arguments:
        name: As for `load`. InputError if there is no such set.
    """
    if name == "digits":
        return None
    find = _find_own
    if name in KNOWN:
        find = _find
    try:
        found = find(name)
    except OSError as error:
        # A name too long for a file, or a folder that may not be looked into
        raise InputError(
            f"{printable(name)} cannot be read: {reason(error)}"
        ) from error
    if found is not None:
        return found
    if name in KNOWN:
        raise InputError(_missing(name))
    raise InputError(_unknown(name))


def catalog() -> list[Entry]:
    """All that `load` knows by name, there or not, and every other set found in the data folders."""
    entries = [
        Entry(
            name="digits",
            what="1,797 handwritten digits of 8×8 pixels, 10 classes",
            present=True,
            where=None,
            how="embedded",
        )
    ]
    for name, known in KNOWN.items():
        path = _find(name)
        if path is None and name.startswith("emnist-"):
            continue  # six splits, rarely all there
        entry = Entry(
            name=name,
            what=known.what,
            present=path is not None,
            where=path,
            how=known.how,
        )
        entries.append(entry)
    return entries + _others(entries)


def _others(known: list[Entry]) -> list[Entry]:
    """The .npz files and LEAF folders in the data folders that are in no entry, the first of each name."""
    names = {*KNOWN, "digits"}
    places = {entry.where for entry in known}
    entries: list[Entry] = []
    for root in data_folders():
        for path in sorted(root.glob("*")):
            if path.suffix == ".npz":
                name = path.stem
                kind = ".npz file"
            elif is_leaf(path):
                name = path.name
                kind = "LEAF folder"
            else:
                continue
            if path in places or name in names:
                continue
            names.add(name)
            entry = Entry(
                name=name,
                what=f"{kind} of your own",
                present=True,
                where=path,
                how="already there",
            )
            entries.append(entry)
    return entries


def _find(name: str) -> Path | None:
    for root in data_folders():
        path = KNOWN[name].find(root)
        if path:
            return path
    return None


def _find_own(name: str) -> Path | None:
    """An .npz file or a LEAF folder: by name in a data folder, or by path."""
    if not name:
        return None
    candidates: list[Path] = []
    is_plain_name = Path(name).name == name
    if is_plain_name:
        for root in data_folders():
            candidates.append(root / f"{name}.npz")
            candidates.append(root / name)
    candidates.append(expand_home(name))

    for path in candidates:
        if is_leaf(path):
            return path
        if path.is_file() and path.suffix == ".npz":
            return path
    return None


def _missing(name: str) -> str:
    known = KNOWN[name]
    return (
        f"{name} is not there: looked for {known.files} in {described_folders()}; "
        f"{known.how}, or set FEDLAMA_DATA to the folder that has it"
    )


def _unknown(name: str) -> str:
    path = expand_home(name)
    given = printable(name)
    allowed = (
        "a path must be that of an .npz file, or of a LEAF folder with train/ and test/"
    )
    if name and path.exists():
        return f"{given} is neither of the two kinds of data that are read by path: {allowed}"
    if path.suffix == ".npz" or os.sep in name:
        return f"{given} does not exist; {allowed}"

    names = [entry.name for entry in catalog()]
    nearest = _nearest(name, names)
    shown_names = [printable(known, 60) for known in names[:MAX_LISTED]]
    listed = ", ".join(shown_names)
    return (
        f"there is no data set {shown(name)}{nearest}, "
        f"nor {given}.npz in {described_folders()}; "
        f"known are {listed}, and {allowed}"
    )


def _nearest(name: str, names: list[str]) -> str:
    """The known name that was probably meant, as part of a sentence."""
    lowered = name.lower()
    candidates = list(names)
    # The catalog leaves out splits of EMNIST that are not there; here one of them may be meant.
    if lowered.startswith("emnist"):
        candidates += KNOWN

    nearest = get_close_matches(lowered, candidates, n=1)
    if not nearest:
        return ""
    return f" (did you mean {printable(nearest[0])}?)"
