"""The sets that are known by name: what each is, where its files are, how to get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedlama.base import InputError, printable
from fedlama.data.cifar import CIFAR10, CIFAR100, Cifar, cifar_files, read_cifar
from fedlama.data.dataset import Dataset
from fedlama.data.idx import (
    EMNIST,
    FASHION_MNIST,
    MNIST,
    IdxSet,
    find_idx,
    idx_files,
    read_idx_set,
)
from fedlama.data.leaf import FEMNIST_CLASSES, is_leaf, leaf_files, read_leaf


@dataclass(frozen=True)
class Known:
    """How one set is described, found below a data folder, and read.

    Arguments:
        what: What the set is, in a line.
        files: What it is looked for as.
        how: How to get it, as a part of a sentence.
        find: The file or folder below a data folder, if it is there.
        read: The data set in it.
        used: The files that `read` reads.
    """

    what: str
    files: str
    how: str
    find: Callable[[Path], Path | None]
    read: Callable[[Path], Dataset]
    used: Callable[[Path], list[Path]]


def _find_cifar(kind: Cifar, root: Path) -> Path | None:
    folder = root / kind.folder
    if folder.is_dir():
        return folder
    archive = root / kind.archive
    if archive.is_file():
        return archive
    return None


def _known_cifar(kind: Cifar, what: str) -> Known:
    return Known(
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
    is_fashion = kind is FASHION_MNIST
    named_fashion = "fashion" in root.name.lower()
    if kind.prefix or is_fashion == named_fashion:
        folders.append(root)

    for folder in folders:
        if find_idx(kind, folder):
            return folder
    return None


def _known_idx(kind: IdxSet, what: str, how: str, *places: str) -> Known:
    folders = "/ or ".join(places)
    return Known(
        what=what,
        files=f"{kind.prefix}train-images-idx3-ubyte[.gz] (and its three companions) in {folders}/",
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
    splits: list[IdxSet] = []
    for kind in EMNIST.values():
        if find_idx(kind, folder):
            splits.append(kind)

    if len(splits) > 1:
        names = ", ".join(kind.name for kind in splits)
        raise InputError(
            f"{printable(folder)} has several splits of emnist: name one of {names}"
        )
    return read_idx_set(splits[0], folder)


def _emnist_files(folder: Path) -> list[Path]:
    files: list[Path] = []
    for kind in EMNIST.values():
        files += idx_files(kind, folder)
    return files


EMNIST_PLACES = ("emnist", "emnist/gzip", "EMNIST/raw", "gzip")
_GET_MNIST = "put the four files into mnist/ of the data folder"
_GET_EMNIST = (
    "unpack gzip.zip of https://www.nist.gov/itl/products-and-services/emnist-dataset "
    "into emnist/ of the data folder"
)
_GET_FASHION = "run `apt install dataset-fashion-mnist`, or put the four files into fashion-mnist/ of the data folder"
_GET_FEMNIST = (
    "clone https://github.com/TalwalkarLab/leaf, run `./preprocess.sh -s niid --sf 1.0 -k 1 -t sample` in its "
    "data/femnist, and move train/ and test/ from data/femnist/data to femnist/ of the data folder"
)

KNOWN: dict[str, Known] = {
    "cifar10": _known_cifar(
        CIFAR10, "CIFAR-10: 50,000 + 10,000 colour images of 32×32 pixels, 10 classes"
    ),
    "cifar100": _known_cifar(
        CIFAR100,
        "CIFAR-100: 50,000 + 10,000 colour images of 32×32 pixels, 100 classes",
    ),
    "femnist": Known(
        what="FEMNIST from LEAF: handwritten characters of 28×28 pixels by writer, 62 classes",
        files="femnist/train/*.json and femnist/test/*.json",
        how=_GET_FEMNIST,
        find=_find_femnist,
        read=partial(read_leaf, name="femnist", classes=FEMNIST_CLASSES),
        used=leaf_files,
    ),
    "mnist": _known_idx(
        MNIST,
        "MNIST: 60,000 + 10,000 digits of 28×28 pixels, 10 classes",
        _GET_MNIST,
        "mnist",
        "MNIST/raw",
    ),
    "fashion-mnist": _known_idx(
        FASHION_MNIST,
        "Fashion-MNIST: 60,000 + 10,000 articles of clothing of 28×28 pixels, 10 classes",
        _GET_FASHION,
        "fashion-mnist",
        "FashionMNIST/raw",
    ),
    "emnist": Known(
        what="EMNIST: handwritten characters of 28×28 pixels; the split that is there, or emnist-SPLIT",
        files=(
            f"emnist-SPLIT-train-images-idx3-ubyte[.gz] (and its three companions; SPLIT is one of {', '.join(EMNIST)})"
        ),
        how=_GET_EMNIST,
        find=_find_emnist,
        read=_read_emnist,
        used=_emnist_files,
    ),
}
for _split, _kind in EMNIST.items():
    _what = f"EMNIST {_split}: characters of 28×28, {_kind.classes} classes"
    KNOWN[_kind.name] = _known_idx(_kind, _what, _GET_EMNIST, *EMNIST_PLACES)
