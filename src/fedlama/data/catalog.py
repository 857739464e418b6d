"""Data sets by name: what there is, where it is looked for, and how to get it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from fedlama.base import InputError, expand_home, printable, reason, shown
from fedlama.data.cifar import CIFAR10, CIFAR100, Cifar, cifar_files, read_cifar
from fedlama.data.dataset import Dataset
from fedlama.data.digits import digits
from fedlama.data.idx import EMNIST, FASHION_MNIST, MNIST, IdxSet, find_idx, idx_files, read_idx_set
from fedlama.data.leaf import FEMNIST_CLASSES, is_leaf, leaf_files, read_leaf
from fedlama.data.npz import read_npz

SYSTEM_FOLDER = Path("/usr/share/datasets")  # Debian's dataset-* packages
MAX_LISTED = 30


@dataclass(frozen=True)
class Entry:
    """A data set of the catalog; `where` is None if it is not there. The embedded digits have no path."""

    name: str
    what: str
    present: bool
    where: Path | None
    how: str


@dataclass(frozen=True)
class _Known:
    """How one set is described, found below a data folder, and read."""

    what: str
    files: str
    how: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Dataset]
    used: Callable[[Path], list[Path]]  # the files that `read` reads


def data_folder() -> Path:
    """Where `fetch` puts archives: the folder in FEDLAMA_DATA, or else the user's cache."""
    for folder in _own_folders():
        return folder
    raise InputError("there is no home folder to keep data in: set FEDLAMA_DATA to a folder")


def data_folders() -> Iterator[Path]:
    """Where sets are looked for, the first place first."""
    yield from _own_folders()
    yield SYSTEM_FOLDER


def _own_folders() -> Iterator[Path]:
    named = os.environ.get("FEDLAMA_DATA")
    if named:
        yield expand_home(named)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        yield expand_home(cache) / "fedlama"
    except InputError:
        # In a container there may be neither HOME nor a user of this number: then there is no cache to look into.
        return


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
        raise InputError(f"{printable(name)} cannot be read: {reason(error)}") from error


def locate(name: str) -> Path | None:
    """The file or folder that `load` reads; None for the embedded digits."""
    if name == "digits":
        return None
    find = _find_own
    if name in KNOWN:
        find = _find
    try:
        found = find(name)
    except OSError as error:  # a name too long for a file, or a folder that may not be looked into
        raise InputError(f"{printable(name)} cannot be read: {reason(error)}") from error
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
    """The .npz files and LEAF folders in the data folders that no entry tells of, the first of each name."""
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
    if Path(name).name == name:
        for root in data_folders():
            candidates.append(root / f"{name}.npz")
            candidates.append(root / name)
    candidates.append(expand_home(name))
    for path in candidates:
        if is_leaf(path) or (path.is_file() and path.suffix == ".npz"):
            return path
    return None


def _missing(name: str) -> str:
    known = KNOWN[name]
    return (
        f"{name} is not there: looked for {known.files} in {_places()}; "
        f"{known.how}, or set FEDLAMA_DATA to the folder that has it"
    )


def _unknown(name: str) -> str:
    path = expand_home(name)
    told = printable(name)
    allowed = "a path must be that of an .npz file, or of a LEAF folder with train/ and test/"
    if name and path.exists():
        return f"{told} is neither of the two kinds of data that are read by path: {allowed}"
    if path.suffix == ".npz" or os.sep in name:
        return f"{told} does not exist; {allowed}"
    names = [entry.name for entry in catalog()]
    listed = ", ".join(printable(known, 60) for known in names[:MAX_LISTED])
    return (
        f"there is no data set {shown(name)}{_nearest(name, names)}, nor {told}.npz in {_places()}; "
        f"known are {listed}, and {allowed}"
    )


def _nearest(name: str, names: list[str]) -> str:
    """The known name that was probably meant, as part of a sentence."""
    candidates = list(names)
    if name.lower().startswith("emnist"):
        candidates += KNOWN
    nearest = get_close_matches(name.lower(), candidates, n=1)
    if not nearest:
        return ""
    return f" (did you mean {printable(nearest[0])}?)"


def _places() -> str:
    told: list[str] = []
    for root in data_folders():
        text = printable(root)
        if not root.is_dir():
            text += " (no such folder)"
        told.append(text)
    *others, last = told
    if not others:
        return last
    return f"{', '.join(others)} and {last}"


def _find_cifar(kind: Cifar, root: Path) -> Path | None:
    folder = root / kind.folder
    if folder.is_dir():
        return folder
    archive = root / kind.archive
    if archive.is_file():
        return archive
    return None


def _known_cifar(kind: Cifar, what: str) -> _Known:
    return _Known(
        what=what,
        files=f"{kind.folder}/ or {kind.archive}",
        how=f"run `fedlama data fetch {kind.name}`",
        find=partial(_find_cifar, kind),
        read=partial(read_cifar, kind),
        used=partial(cifar_files, kind),
    )


def _find_femnist(root: Path) -> Path | None:
    """LEAF's own output, moved to femnist/ or left in the checkout."""
    for place in ("femnist", "femnist/data", "leaf/data/femnist/data"):
        folder = root / place
        if is_leaf(folder):
            return folder
    return None


def _find_idx(kind: IdxSet, places: tuple[str, ...], root: Path) -> Path | None:
    """The folder with any of the four files; the reader says which are missing.

    EMNIST's names tell that a file is its own. MNIST and Fashion-MNIST share theirs, so that of the folder must.
    """
    folders = [root / place for place in places]
    named_fashion = "fashion" in root.name.lower()
    if kind.prefix or (kind is FASHION_MNIST) == named_fashion:
        folders.append(root)
    for folder in folders:
        if find_idx(kind, folder):
            return folder
    return None


def _known_idx(kind: IdxSet, what: str, how: str, *places: str) -> _Known:
    return _Known(
        what=what,
        files=f"{kind.prefix}train-images-idx3-ubyte[.gz] (and its three companions) in {'/ or '.join(places)}/",
        how=how,
        find=partial(_find_idx, kind, places),
        read=partial(read_idx_set, kind),
        used=partial(idx_files, kind),
    )


def _find_emnist(root: Path) -> Path | None:
    for kind in EMNIST.values():
        path = _find_idx(kind, EMNIST_PLACES, root)
        if path:
            return path
    return None


def _read_emnist(folder: Path) -> Dataset:
    """Whichever split is there: which one is meant must not depend on what else lies around."""
    splits = [kind for kind in EMNIST.values() if find_idx(kind, folder)]
    if len(splits) > 1:
        names = ", ".join(kind.name for kind in splits)
        raise InputError(f"{printable(folder)} has several splits of emnist: name one of {names}")
    return read_idx_set(splits[0], folder)


def _emnist_files(folder: Path) -> list[Path]:
    files: list[Path] = []
    for kind in EMNIST.values():
        files += idx_files(kind, folder)
    return files


EMNIST_PLACES = ("emnist", "emnist/gzip", "EMNIST/raw", "gzip")
_GET_MNIST = "put the four files into mnist/ of the data folder"
_GET_EMNIST = (
    "unpack gzip.zip of https://www.nist.gov/itl/products-and-services/emnist-dataset into emnist/ of the data folder"
)
_GET_FASHION = "run `apt install dataset-fashion-mnist`, or put the four files into fashion-mnist/ of the data folder"
_GET_FEMNIST = (
    "clone https://github.com/TalwalkarLab/leaf, run `./preprocess.sh -s niid --sf 1.0 -k 1 -t sample` in its "
    "data/femnist, and move train/ and test/ from data/femnist/data to femnist/ of the data folder"
)

KNOWN = {
    "cifar10": _known_cifar(CIFAR10, "CIFAR-10: 50,000 + 10,000 colour images of 32×32 pixels, 10 classes"),
    "cifar100": _known_cifar(CIFAR100, "CIFAR-100: 50,000 + 10,000 colour images of 32×32 pixels, 100 classes"),
    "femnist": _Known(
        "FEMNIST from LEAF: handwritten characters of 28×28 pixels by writer, 62 classes",
        "femnist/train/*.json and femnist/test/*.json",
        _GET_FEMNIST,
        _find_femnist,
        partial(read_leaf, name="femnist", classes=FEMNIST_CLASSES),
        leaf_files,
    ),
    "mnist": _known_idx(
        MNIST, "MNIST: 60,000 + 10,000 digits of 28×28 pixels, 10 classes", _GET_MNIST, "mnist", "MNIST/raw"
    ),
    "fashion-mnist": _known_idx(
        FASHION_MNIST,
        "Fashion-MNIST: 60,000 + 10,000 articles of clothing of 28×28 pixels, 10 classes",
        _GET_FASHION,
        "fashion-mnist",
        "FashionMNIST/raw",
    ),
    "emnist": _Known(
        "EMNIST: handwritten characters of 28×28 pixels; the split that is there, or emnist-SPLIT",
        f"emnist-SPLIT-train-images-idx3-ubyte[.gz] (and its three companions; SPLIT is one of {', '.join(EMNIST)})",
        _GET_EMNIST,
        _find_emnist,
        _read_emnist,
        _emnist_files,
    ),
    **{
        kind.name: _known_idx(
            kind, f"EMNIST {split}: characters of 28×28, {kind.classes} classes", _GET_EMNIST, *EMNIST_PLACES
        )
        for split, kind in EMNIST.items()
    },
}
