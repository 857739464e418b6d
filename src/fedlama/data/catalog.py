"""Data sets by name: what there is, where it is looked for, and how to get it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from fedlama.base import InputError
from fedlama.data.cifar import CIFAR10, CIFAR100, Cifar, cifar_files, read_cifar
from fedlama.data.dataset import Dataset
from fedlama.data.digits import digits
from fedlama.data.idx import EMNIST, FASHION_MNIST, MNIST, IdxSet, find_idx, idx_files, read_idx_set
from fedlama.data.leaf import FEMNIST_CLASSES, is_leaf, leaf_files, read_leaf
from fedlama.data.npz import read_npz

SYSTEM_FOLDER = Path("/usr/share/datasets")  # Debian's dataset-* packages


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
    return next(iter(data_folders()))


def data_folders() -> Iterator[Path]:
    """Where sets are looked for, the first place first."""
    if named := os.environ.get("FEDLAMA_DATA"):
        yield Path(named).expanduser()
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedlama"
    yield SYSTEM_FOLDER


def load(name: str) -> Dataset:
    """A data set by its name in the catalog, by the name of a set in a data folder, or by path (.npz, LEAF folder)."""
    name = os.fspath(name)
    try:
        path = locate(name)
        if path is None:
            return digits()
        if name in KNOWN:
            return KNOWN[name].read(path)
        return read_leaf(path) if path.is_dir() else read_npz(path)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error}") from error


def locate(name: str) -> Path | None:
    """The file or folder that `load` reads; None for the embedded digits."""
    if name == "digits":
        return None
    found = _find(name) if name in KNOWN else _find_own(name)
    if found is None:
        raise InputError(_missing(name) if name in KNOWN else _unknown(name))
    return found


def catalog() -> list[Entry]:
    """All that `load` knows by name, there or not, and every other set found in the data folders."""
    embedded = Entry("digits", "1,797 handwritten digits of 8×8 pixels, 10 classes", True, None, "embedded")
    found = {name: _find(name) for name in KNOWN}
    listed = [name for name in KNOWN if found[name] or not name.startswith("emnist-")]  # six splits, rarely all there
    known = [Entry(name, KNOWN[name].what, bool(found[name]), found[name], KNOWN[name].how) for name in listed]
    return [embedded, *known, *_others(set(found.values()))]


def _others(known: set[Path | None]) -> Iterator[Entry]:
    names: set[str] = set()
    for path in [path for root in data_folders() for path in sorted(root.glob("*"))]:
        kind = ".npz file" if path.suffix == ".npz" else "LEAF folder" if is_leaf(path) else None
        name = path.stem if path.suffix == ".npz" else path.name
        if kind and path not in known and name not in {*names, *KNOWN, "digits"}:
            names.add(name)
            yield Entry(name, f"{kind} of your own", True, path, "already there")


def _find(name: str) -> Path | None:
    return next((path for root in data_folders() if (path := KNOWN[name].find(root))), None)


def _find_own(name: str) -> Path | None:
    """An .npz file or a LEAF folder: by name in a data folder, or by path."""
    if name and Path(name).name == name:
        for root in data_folders():
            for path in (root / f"{name}.npz", root / name):
                if _is_own(path):
                    return path
    path = Path(name).expanduser()
    return path if name and _is_own(path) else None


def _is_own(path: Path) -> bool:
    return is_leaf(path) or (path.is_file() and path.suffix == ".npz")


def _missing(name: str) -> str:
    known = KNOWN[name]
    return (
        f"{name} is not there: looked for {known.files} in {_places()}; "
        f"{known.how}, or set FEDLAMA_DATA to the folder that has it"
    )


def _unknown(name: str) -> str:
    path = Path(name).expanduser()
    allowed = "a path must be that of an .npz file, or of a LEAF folder with train/ and test/"
    if name and path.exists():
        return f"{name} is neither of the two kinds of data that are read by path: {allowed}"
    if path.suffix == ".npz" or os.sep in name:
        return f"{name} does not exist; {allowed}"
    names = [entry.name for entry in catalog()]
    splits = [known for known in KNOWN if name.lower().startswith("emnist")]
    nearest = get_close_matches(name.lower(), [*names, *splits], n=1)
    hint = f" (did you mean {nearest[0]}?)" if nearest else ""
    return (
        f"there is no data set {name!r}{hint}, nor {name}.npz in {_places()}; "
        f"known are {', '.join(names)}, and {allowed}"
    )


def _places() -> str:
    roots = [f"{root}{'' if root.is_dir() else ' (no such folder)'}" for root in data_folders()]
    return f"{', '.join(roots[:-1])} and {roots[-1]}"


def _find_cifar(kind: Cifar, root: Path) -> Path | None:
    folder, archive = root / kind.folder, root / kind.archive
    return folder if folder.is_dir() else archive if archive.is_file() else None


def _known_cifar(kind: Cifar, what: str) -> _Known:
    return _Known(
        what,
        f"{kind.folder}/ or {kind.archive}",
        f"run `fedlama data fetch {kind.name}`",
        partial(_find_cifar, kind),
        partial(read_cifar, kind),
        partial(cifar_files, kind),
    )


def _find_femnist(root: Path) -> Path | None:
    """LEAF's own output, moved to femnist/ or left in the checkout."""
    folders = (root / place for place in ("femnist", "femnist/data", "leaf/data/femnist/data"))
    return next((folder for folder in folders if is_leaf(folder)), None)


def _find_idx(kind: IdxSet, places: tuple[str, ...], root: Path) -> Path | None:
    """The folder with any of the four files; the reader says which are missing.

    EMNIST's names tell that a file is its own. MNIST and Fashion-MNIST share theirs, so that of the folder must.
    """
    told_by_name = kind.prefix or (kind is FASHION_MNIST) == ("fashion" in root.name.lower())
    folders = [*(root / place for place in places), *([root] if told_by_name else [])]
    return next((folder for folder in folders if find_idx(kind, folder)), None)


def _known_idx(kind: IdxSet, what: str, how: str, *places: str) -> _Known:
    files = f"{kind.prefix}train-images-idx3-ubyte[.gz] (and its three companions) in {'/ or '.join(places)}/"
    used = partial(idx_files, kind)
    return _Known(what, files, how, partial(_find_idx, kind, places), partial(read_idx_set, kind), used)


def _find_emnist(root: Path) -> Path | None:
    return next((path for kind in EMNIST.values() if (path := _find_idx(kind, EMNIST_PLACES, root))), None)


def _read_emnist(folder: Path) -> Dataset:
    """Whichever split is there: which one is meant must not depend on what else lies around."""
    splits = [kind for kind in EMNIST.values() if find_idx(kind, folder)]
    if len(splits) > 1:
        raise InputError(
            f"{folder} has several splits of emnist: name one of {', '.join(kind.name for kind in splits)}"
        )
    return read_idx_set(splits[0], folder)


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
        lambda folder: [path for kind in EMNIST.values() for path in idx_files(kind, folder)],
    ),
    **{
        kind.name: _known_idx(
            kind, f"EMNIST {split}: characters of 28×28, {kind.classes} classes", _GET_EMNIST, *EMNIST_PLACES
        )
        for split, kind in EMNIST.items()
    },
}
