"""CIFAR-10 and CIFAR-100 as published (A. Krizhevsky, 2009): the Python archive, or the folder it unpacks to.

The files inside are Python 2 pickles, read by `pickled`, which runs none of them. Archives are read in place; nothing
from them is written to disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedlama.base import InputError, printable, read_regular, reason, shown
from fedlama.data.archive import MAX_FILE, read_archive
from fedlama.data.dataset import Dataset
from fedlama.data.from_arrays import arrays
from fedlama.data.pickled import Call, NotArraysError, unpickle
from fedlama.data.pickled_arrays import as_array

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

    @property
    def files(self) -> tuple[str, ...]:
        """All files that have samples, the test samples last."""
        return (*self.train, self.test)


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
    if not path.is_dir():
        return [path]
    return [path / file for file in kind.files]


def read_cifar(kind: Cifar, path: Path) -> Dataset:
    """The data set in `path`, an unpacked folder or a `.tar.gz`; images are cropped and flipped in training.

    Arguments:
        kind: CIFAR10 or CIFAR100.
        path: The folder with the pickled batches, or the archive that it comes in.
    """
    parts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for file, where, content in _contents(kind, path):
        parts[file] = _images_and_labels(kind, where, content)

    missing = [file for file in kind.files if file not in parts]
    if missing:
        listed = ", ".join(missing)
        raise InputError(
            f"{printable(path)} is incomplete: {listed} is missing from {kind.folder}"
        )

    train_images = [parts[file][0] for file in kind.train]
    train_labels = [parts[file][1] for file in kind.train]
    test_images, test_labels = parts[kind.test]
    data = arrays(
        np.concatenate(train_images),
        np.concatenate(train_labels),
        test_images,
        test_labels,
        name=kind.name,
    )
    return replace(
        data,
        classes=kind.classes,
        mean=kind.mean,
        std=kind.std,
        augment="crop-flip",
    )


def _contents(kind: Cifar, path: Path) -> Iterator[tuple[str, str, bytes]]:
    """For each file that is there: its name, where it is for a message, and its content."""
    if path.is_dir():
        yield from _from_folder(kind, path)
        return

    start = f"{kind.folder}/"
    wanted = {start + file for file in kind.files}
    for name, content in read_archive(path, wanted):
        file = name.removeprefix(start)
        where = f"{printable(path)}: {name}"
        yield file, where, content


def _from_folder(kind: Cifar, folder: Path) -> Iterator[tuple[str, str, bytes]]:
    for file in kind.files:
        path = folder / file
        what = f"an official {kind.name} file"
        try:
            content = read_regular(path, MAX_FILE, what)
        except FileNotFoundError:
            continue  # all that are missing are named at once
        except OSError as error:
            raise InputError(
                f"{printable(path)} cannot be read: {reason(error)}"
            ) from error
        yield file, printable(path), content


def _images_and_labels(
    kind: Cifar, where: str, content: bytes
) -> tuple[np.ndarray, np.ndarray]:
    """Checked images [n, 3, 32, 32] and labels [n] of one file, which messages call `where`."""
    try:
        stored = unpickle(content)
        images = as_array(stored["data"])
        labels = stored[kind.labels]
        if isinstance(labels, Call):
            labels = as_array(labels).tolist()
    except NotArraysError as error:
        raise InputError(
            f"{where} is not an official {kind.name} file: {error}"
        ) from error
    except Exception as error:  # a broken pickle can fail in any way there is
        raise InputError(
            f"{where} is not an official {kind.name} file: it is broken, or lacks 'data' or its labels"
        ) from error

    _check_images(where, images)
    _check_labels(where, kind, labels)
    if len(labels) != len(images):
        raise InputError(f"{where} holds {len(images)} images and {len(labels)} labels")

    images = images.reshape(-1, 3, 32, 32)
    return images, np.array(labels, dtype=np.int64)


def _check_images(where: str, images: np.ndarray) -> None:
    shape = list(images.shape)
    are_bytes = images.dtype == np.uint8
    are_rows = shape[1:] == [PIXELS]
    if not are_bytes or not are_rows or not len(images):
        raise InputError(
            f"{where}: 'data' must be uint8 of shape [n, {PIXELS}], "
            f"not {images.dtype} of shape {shape}"
        )


def _check_labels(where: str, kind: Cifar, labels: Any) -> None:
    if not _is_list_of_whole_numbers(labels):
        raise InputError(f"{where}: '{kind.labels}' must be a list of whole numbers")

    last = kind.classes - 1
    for sample, label in enumerate(labels):
        if not 0 <= label <= last:
            raise InputError(
                f"{where}: label {shown(label)} of sample {sample} is outside 0 … {last}"
            )


def _is_list_of_whole_numbers(labels: Any) -> bool:
    if not isinstance(labels, list):
        return False
    # Not isinstance, for which True is a whole number
    return all(type(label) is int for label in labels)
