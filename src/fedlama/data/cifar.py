"""CIFAR-10 and CIFAR-100 as published (A. Krizhevsky, 2009): the Python archive, or the folder it unpacks to.

The files inside are Python 2 pickles, read by `pickled`, which runs none of them. Archives are read in place; nothing
from them is written to disk.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fedlama.base import InputError
from fedlama.data.dataset import Dataset, arrays
from fedlama.data.pickled import Call, NotArraysError, as_array, unpickle

LARGEST_FILE = 256 << 20  # bytes; the largest official one, CIFAR-100's train, has 155 million
LARGEST_ARCHIVE = 512 << 20  # unpacked; the official ones have 186 million
MOST_MEMBERS = 100
MOST_READS_AT_END = 16
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Cifar:
    """What differs between the two sets."""

    name: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    labels: str
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


CIFAR10 = Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{k}" for k in range(1, 6)),
    test="test_batch",
    labels="labels",
    classes=10,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)
CIFAR100 = Cifar(
    name="cifar100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    labels="fine_labels",
    classes=100,
    mean=(0.5071, 0.4866, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


def cifar_files(kind: Cifar, path: Path) -> list[Path]:
    """What `read_cifar` reads, in its order."""
    return [path / file for file in (*kind.train, kind.test)] if path.is_dir() else [path]


def read_cifar(kind: Cifar, path: Path) -> Dataset:
    """The data set in `path`, an unpacked folder or a `.tar.gz`; images are cropped and flipped in training."""
    files = _from_folder(kind, path) if path.is_dir() else _from_archive(kind, path)
    parts = {file: _images_and_labels(kind, where, content) for file, where, content in files}
    missing = [file for file in (*kind.train, kind.test) if file not in parts]
    if missing:
        raise InputError(f"{path} is incomplete: {', '.join(missing)} is missing from {kind.folder}")
    images, labels = zip(*(parts[file] for file in kind.train), strict=True)
    data = arrays(np.concatenate(images), np.concatenate(labels), *parts[kind.test], name=kind.name)
    return replace(data, classes=kind.classes, mean=kind.mean, std=kind.std, augment="crop-flip")


def _from_folder(kind: Cifar, folder: Path) -> Iterator[tuple[str, str, bytes]]:
    for file in (*kind.train, kind.test):
        path = folder / file
        if not path.is_file():
            continue
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} has {path.stat().st_size:,} bytes; an official file has at most 155 million")
        try:
            yield file, str(path), path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _from_archive(kind: Cifar, path: Path) -> Iterator[tuple[str, str, bytes]]:
    """The wanted members; an archive with names that climb or start at the root is nobody's official one."""
    wanted = {PurePosixPath(kind.folder, file): file for file in (*kind.train, kind.test)}
    try:
        with gzip.open(path) as unpacked:
            bounded: Any = _Bounded(unpacked, path)  # Any: tarfile asks for a whole file and only reads
            with tarfile.open(fileobj=bounded, mode="r|") as archive:
                for number, member in enumerate(archive):
                    if number >= MOST_MEMBERS:
                        raise InputError(f"{path} has over {MOST_MEMBERS} members; {kind.archive} has 9 or fewer")
                    if PurePosixPath(member.name).is_absolute() or ".." in PurePosixPath(member.name).parts:
                        raise InputError(f"{path}: {member.name!r} leads out of the archive, so nothing of it is read")
                    if file := wanted.get(PurePosixPath(member.name)):
                        yield file, f"{path}: {member.name}", _content(archive, member, path)
            while bounded.read(1 << 20):  # to the end, where gzip's checksum is
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is not a complete .tar.gz archive ({error}); fetch it again") from error


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bytes:
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise InputError(f"{path}: {member.name} is a link or a special file; only plain files are read")
    if member.size > LARGEST_FILE:
        raise InputError(
            f"{path}: {member.name} claims {member.size:,} bytes; an official file has at most 155 million"
        )
    stream = archive.extractfile(member)
    assert stream is not None, "a plain file has content"
    return stream.read()


class _Bounded:
    """A stream that refuses to unpack more than an official archive could hold, or to be read on and on at its end.

    tarfile skips a member piece by piece, also one that claims more than there will ever be.
    """

    def __init__(self, stream: io.BufferedIOBase, path: Path) -> None:
        self._stream, self._path, self._left = stream, path, LARGEST_ARCHIVE
        self._reads_at_end = 0

    def read(self, count: int) -> bytes:
        content = self._stream.read(min(count, self._left + 1))
        self._left -= len(content)
        self._reads_at_end += not content
        if self._reads_at_end > MOST_READS_AT_END:
            raise EOFError("it ends inside a member")
        if self._left < 0:
            raise InputError(f"{self._path} unpacks to over {LARGEST_ARCHIVE:,} bytes; an official archive does not")
        return content


def _images_and_labels(kind: Cifar, where: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        stored = unpickle(content)
        images, labels = as_array(stored["data"]), stored[kind.labels]
        labels = as_array(labels).tolist() if isinstance(labels, Call) else labels
    except Exception as error:  # a broken pickle can fail in any way there is
        reason = (
            str(error)[:200] if isinstance(error, NotArraysError) else "it is broken, or lacks 'data' or its labels"
        )
        raise InputError(f"{where} is not an official {kind.name} file: {reason}") from error
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != PIXELS or not len(images):
        found = f"{images.dtype} of shape {list(images.shape)}"
        raise InputError(f"{where}: 'data' must be uint8 of shape [n, {PIXELS}], not {found}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise InputError(f"{where}: '{kind.labels}' must be a list of whole numbers")
    if len(labels) != len(images):
        raise InputError(f"{where} holds {len(images)} images and {len(labels)} labels")
    for sample, label in enumerate(labels):
        if not 0 <= label < kind.classes:
            raise InputError(f"{where}: label {label} of sample {sample} is outside 0 … {kind.classes - 1}")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)
