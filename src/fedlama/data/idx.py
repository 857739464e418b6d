"""IDX files, as MNIST (Y. LeCun), Fashion-MNIST (Xiao et al. 2017) and EMNIST (Cohen et al. 2017) come, gzipped or not.

Two zero bytes, a type, the number of dimensions, each dimension as a big-endian uint32, then the values.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from fedlama.base import InputError, open_regular, printable, reason
from fedlama.data.dataset import Dataset
from fedlama.data.from_arrays import arrays
from fedlama.data.unpacking import largest_unpacked

UNSIGNED_BYTES = 0x08
GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20
ROLES = ("train images", "train labels", "test images", "test labels")


@dataclass(frozen=True)
class IdxSet:
    """One set of four files; `prefix` precedes the usual names, and labels start at `first_label`."""

    name: str
    classes: int
    prefix: str = ""
    first_label: int = 0
    mean: float = 0.0
    std: float = 1.0


MNIST = IdxSet("mnist", 10, mean=0.1307, std=0.3081)
FASHION_MNIST = IdxSet("fashion-mnist", 10, mean=0.2860, std=0.3530)
_SPLITS = {
    "balanced": 47,
    "byclass": 62,
    "bymerge": 47,
    "digits": 10,
    "letters": 26,
    "mnist": 10,
}
EMNIST = {
    split: IdxSet(f"emnist-{split}", classes, f"emnist-{split}-")
    for split, classes in _SPLITS.items()
}
# It alone counts its classes from 1
EMNIST["letters"] = replace(EMNIST["letters"], first_label=1)


def find_idx(kind: IdxSet, folder: Path) -> dict[str, Path]:
    """Which of the four files are in `folder`, under any of the names they are published with."""
    found: dict[str, Path] = {}
    for role in ROLES:
        split, content = role.split()
        path = _first(
            folder,
            kind.prefix,
            split,
            content,
        )
        if path:
            found[role] = path
    return found


def idx_files(kind: IdxSet, folder: Path) -> list[Path]:
    """What `read_idx_set` reads, in the order of ROLES."""
    found = find_idx(kind, folder)
    return list(found.values())


def _first(folder: Path, prefix: str, split: str, content: str) -> Path | None:
    splits = ("t10k", "test")
    if split == "train":
        splits = ("train",)
    dimensions = 1
    if content == "images":
        dimensions = 3

    # Some programs write a dot where the published names have a hyphen.
    for part, dot, ending in product(splits, "-.", ("", ".gz")):
        name = f"{prefix}{part}-{content}{dot}idx{dimensions}-ubyte{ending}"
        path = folder / name
        if path.is_file():
            return path
    return None


def read_idx_set(kind: IdxSet, folder: Path) -> Dataset:
    """The data set in `folder`: uint8 [n, 1, height, width], pixels in the order the files have them."""
    files = find_idx(kind, folder)
    missing = [role for role in ROLES if role not in files]
    if missing:
        listed = " and no ".join(missing)
        raise InputError(
            f"{printable(folder)} has no {listed} of {kind.name} "
            f"(such as {kind.prefix}train-images-idx3-ubyte.gz)"
        )

    x_train, y_train = _read_pair(
        kind,
        files["train images"],
        files["train labels"],
    )
    x_test, y_test = _read_pair(
        kind,
        files["test images"],
        files["test labels"],
    )
    pixels = x_train.shape[2:]
    test_pixels = x_test.shape[2:]
    if pixels != test_pixels:
        raise InputError(
            f"{printable(folder)}: training images are {pixels} and test images {test_pixels} pixels"
        )
    data = arrays(x_train, y_train, x_test, y_test, name=kind.name)
    return replace(
        data,
        classes=kind.classes,
        mean=(kind.mean,),
        std=(kind.std,),
    )


def _read_pair(
    kind: IdxSet, images_file: Path, labels_file: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Images with a channel, and their labels, counted from 0."""
    images = read_idx(images_file, 3)
    labels = read_idx(labels_file, 1)
    # Bytes have no numbers below 0, and would wrap around where the first label is subtracted.
    labels = labels.astype(np.int64)
    if len(images) != len(labels):
        raise InputError(
            f"{printable(images_file)} holds {len(images)} images, "
            f"and {printable(labels_file.name)} {len(labels)} labels"
        )

    first = kind.first_label
    last = first + kind.classes - 1
    too_small = labels < first
    too_large = labels > last
    outside = too_small | too_large
    if outside.any():
        sample = int(outside.argmax())
        raise InputError(
            f"{printable(labels_file)}: "
            f"label {labels[sample]} of sample {sample} is outside {first} … {last}"
        )

    with_channel = images[:, None]
    from_zero = labels - first
    return with_channel, from_zero


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The unsigned bytes of one file, which must have so many dimensions."""
    try:
        with _unpacked(path) as (stream, largest):
            header = stream.read(_header_length(dimensions))
            shape = _shape(path, header, dimensions)
            content = _exactly(path, stream, shape, largest)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{printable(path)} cannot be read ({reason(error)}); fetch it again"
        ) from error
    values = np.frombuffer(content, np.uint8)
    return values.reshape(shape)


def _header_length(dimensions: int) -> int:
    """Four bytes that say what it is, and four for each dimension."""
    return 4 + 4 * dimensions


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """The file's content, and an upper bound of its length."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        magic = file.read(2)
        file.seek(0)
        # The name may lie, or the browser may have unpacked it.
        if magic != GZIP_MAGIC:
            yield file, size
            return
        with gzip.open(file) as stream:
            yield cast(BinaryIO, stream), largest_unpacked(size)


def _shape(path: Path, header: bytes, dimensions: int) -> tuple[int, ...]:
    start = header[:4]
    expected = bytes((0, 0, UNSIGNED_BYTES, dimensions))
    if start != expected:
        found = start.hex(" ") or "nothing"
        raise InputError(
            f"{printable(path)} starts with {found}; "
            f"an IDX file of unsigned bytes in {dimensions} dimensions "
            f"starts with {expected.hex(' ')}"
        )
    if len(header) < _header_length(dimensions):
        raise InputError(f"{printable(path)} ends inside its header")

    sizes = np.frombuffer(header, ">u4", offset=4)
    shape = tuple(sizes.tolist())
    if 0 in shape:
        raise InputError(f"{printable(path)} is empty: its header says {_times(shape)}")
    return shape


def _exactly(
    path: Path, stream: BinaryIO, shape: tuple[int, ...], largest: int
) -> bytearray:
    """The values. Memory grows with what is there, never with what the header claims."""
    claimed = math.prod(shape)
    content = bytearray()
    if claimed <= largest:
        # One byte more than is claimed shows whether the file holds more.
        while len(content) <= claimed:
            missing = claimed + 1 - len(content)
            chunk = stream.read(min(CHUNK, missing))
            if not chunk:
                break
            content += chunk
    if len(content) == claimed:
        return content

    held = "more"
    if len(content) < claimed:
        held = "fewer"
    raise InputError(
        f"{printable(path)}: its header claims {_times(shape)} values, and the file holds {held}; fetch it again"
    )


def _times(shape: tuple[int, ...]) -> str:
    sizes = [f"{size:,}" for size in shape]
    return " × ".join(sizes)
